#include "ckptd/io/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "formats/arena.h"
#include "formats/base/checked.h"
#include "formats/base/ids.h"

namespace ckptd {

namespace {

using ckpt::kBlockBytes;
using ckpt::kHugePageBytes;

constexpr int kMadviseCollapse = 25;  // MADV_COLLAPSE: older C libraries do not declare it

// True if the shared memory has a page in that range, mapped here or not.
bool has_pages(std::byte* at) {
  std::array<unsigned char, kHugePageBytes / kBlockBytes> resident{};
  if (::mincore(at, kHugePageBytes, resident.data()) != 0) return true;
  return std::ranges::any_of(resident, [](unsigned char page) { return (page & 1) != 0; });
}

// The kernel collapses only what has a page table, so one small page comes first.
bool make_huge_page(std::byte* at) {
  return ::madvise(at, kBlockBytes, MADV_POPULATE_WRITE) == 0 &&
         ::madvise(at, kHugePageBytes, kMadviseCollapse) == 0;
}

}  // namespace

void make_huge_pages(ckpt::MutableByteView memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  uint64_t at = ckpt::base::align_up(address, kHugePageBytes) - address;
  for (; at + kHugePageBytes <= memory.size(); at += kHugePageBytes) {
    std::byte* const page = memory.data() + at;
    if (!has_pages(page) && !make_huge_page(page)) return;
  }
}

}  // namespace ckptd
