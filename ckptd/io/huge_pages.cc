#include "ckptd/io/huge_pages.h"

#include <sys/mman.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>

#include "formats/arena.h"
#include "formats/base/checked.h"
#include "formats/base/ids.h"

namespace ckptd {

namespace {

using ckpt::kBlockBytes;
using ckpt::kHugePageBytes;

constexpr int kMadviseCollapse = 25;  // MADV_COLLAPSE: older C libraries do not declare it
constexpr std::chrono::seconds kPauseAfterFailure{10};  // for lack of memory

// Memory is fragmented for all arenas alike.
std::atomic<std::chrono::steady_clock::time_point> paused_until{};  // {}: the start of the machine

bool kernel_merges_registered_pages() {
  static const bool merges = [] {
    utsname name{};
    unsigned major = 0;
    unsigned minor = 0;
    if (::uname(&name) != 0) return false;
    const char* const end = name.release + std::strlen(name.release);
    const auto parsed = std::from_chars(name.release, end, major);
    if (parsed.ec != std::errc() || parsed.ptr == end || *parsed.ptr != '.') return false;
    if (std::from_chars(parsed.ptr + 1, end, minor).ec != std::errc()) return false;
    return std::pair(major, minor) >= std::pair(6u, 12u);
  }();
  return merges;
}

// True if the shared memory has a page in that range, mapped here or not.
bool has_pages(std::byte* at) {
  std::array<unsigned char, kHugePageBytes / kBlockBytes> resident{};
  if (::mincore(at, kHugePageBytes, resident.data()) != 0) return true;
  return std::ranges::any_of(resident, [](unsigned char page) { return (page & 1) != 0; });
}

// The kernel does not collapse a range without any page.
bool make_first_page(std::byte* at) { return ::madvise(at, kBlockBytes, MADV_POPULATE_WRITE) == 0; }

// One call for all: each call first waits for all processors. EAGAIN: a page was in use, briefly.
bool collapse(std::byte* at, uint64_t bytes) {
  if (::madvise(at, bytes, kMadviseCollapse) == 0) return true;
  return errno == EAGAIN && ::madvise(at, bytes, kMadviseCollapse) == 0;
}

// 0 or errno.
int make_pages(ckpt::MutableByteView memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  uint64_t begin = ckpt::base::align_up(address, kHugePageBytes) - address;
  while (begin + kHugePageBytes <= memory.size()) {
    uint64_t end = begin;
    while (end + kHugePageBytes <= memory.size() && !has_pages(memory.data() + end)) {
      if (!make_first_page(memory.data() + end)) return errno;
      end += kHugePageBytes;
    }
    if (end > begin && !collapse(memory.data() + begin, end - begin)) return errno;
    begin = end + kHugePageBytes;  // what begins at `end` has pages, or lies outside
  }
  return 0;
}

}  // namespace

void make_huge_pages(ckpt::MutableByteView memory) {
  if (!kernel_merges_registered_pages()) return;
  if (std::chrono::steady_clock::now() < paused_until.load()) return;
  if (make_pages(memory) != ENOMEM) return;  // other errors come from what a client does
  paused_until.store(std::chrono::steady_clock::now() + kPauseAfterFailure);
}

}  // namespace ckptd
