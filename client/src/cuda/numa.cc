#include "client/src/cuda/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <cstdint>
#include <fstream>

namespace ckpt::lib {

namespace {

constexpr size_t kBitsOfAWord = sizeof(uint64_t) * CHAR_BIT;
constexpr size_t kNodesMax = 1024;  // of Linux
using NodeMask = std::array<uint64_t, kNodesMax / kBitsOfAWord>;

// mbind(2), which the C library leaves to libnuma. Passes one bit more than there are, since the
// kernel subtracts one.
bool mbind(MutableByteView memory, int mode, const NodeMask& nodes) {
  return ::syscall(SYS_mbind, memory.data(), memory.size(), mode, nodes.data(), kNodesMax + 1, 0) ==
         0;
}

}  // namespace

int numa_node_of_pci_device(const std::string& address, const std::string& devices) {
  std::string name = address;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  int node = -1;
  std::ifstream file(devices + "/" + name + "/numa_node");
  return file >> node && node >= 0 && node < static_cast<int>(kNodesMax) ? node : -1;
}

bool prefer_numa_node(MutableByteView memory, int node) {
  NodeMask nodes{};
  const auto bit = static_cast<size_t>(node);
  nodes.at(bit / kBitsOfAWord) = uint64_t{1} << bit % kBitsOfAWord;
  return mbind(memory, MPOL_PREFERRED, nodes);
}

}  // namespace ckpt::lib
