#include "ckptd/staging/page_guard.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ckptd/io/huge_pages.h"
#include "formats/base/checked.h"
#include "formats/base/ids.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

namespace {

using ckpt::ErrorCode;
using ckpt::kBlockBytes;
using ckpt::make_error;

// Bits of a pagemap entry (Documentation/admin-guide/mm/pagemap.rst): present in memory; swapped or
// migrating.
constexpr uint64_t kPresent = 1ull << 63;
constexpr uint64_t kSwapped = 1ull << 62;

// PAGEMAP_SCAN of the same document: lists ranges of pages by the same two properties, with bits of
// its own. Declared here because kernel headers have it only from 6.7 on.
constexpr uint64_t kScanPresent = 1u << 3;
constexpr uint64_t kScanSwapped = 1u << 4;
constexpr uint64_t kScanHuge = 1u << 6;
struct ScannedRange {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t categories = 0;
};
struct ScanArguments {
  uint64_t size = sizeof(ScanArguments);
  uint64_t flags = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t walk_end = 0;  // where the walk ended
  uint64_t ranges = 0;
  uint64_t ranges_max = 0;
  uint64_t pages_max = 0;         // 0: any number
  uint64_t inverted = 0;          // properties that must be absent
  uint64_t all_of = 0;            // a listed page has all of these
  uint64_t any_of = 0;            // 0: no condition
  uint64_t categories_shown = 0;  // properties that separate ranges
};
static_assert(sizeof(ScanArguments) == 96 && sizeof(ScannedRange) == 24);
constexpr unsigned long kPagemapScan = _IOWR('f', 16, ScanArguments);

int pagemap() {
  static const ckpt::base::UniqueFd fd(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  return fd.get();
}

ckpt::Error no_answer(const char* why) {
  return make_error(ErrorCode::kUnavailable, "/proc/self/pagemap: {}", why);
}

// Where a page is. Swapped pages include those that are migrating.
enum class Where : uint8_t { kMemory, kMemoryOrSwap };

// Pages that have all these categories; those in `inverted` must be absent instead.
ckpt::Result<uint64_t> count_by_scan(ckpt::ByteView memory, uint64_t categories,
                                     uint64_t inverted) {
  auto at = reinterpret_cast<uintptr_t>(memory.data());
  const uint64_t end = at + ckpt::base::align_up(memory.size(), kBlockBytes);
  uint64_t pages = 0;
  std::array<ScannedRange, 16> ranges;
  while (at < end) {
    ScanArguments scan;
    scan.start = at;
    scan.end = end;
    scan.ranges = reinterpret_cast<uintptr_t>(ranges.data());
    scan.ranges_max = ranges.size();
    scan.all_of = scan.categories_shown = categories;
    scan.inverted = inverted;
    const int got = ::ioctl(pagemap(), kPagemapScan, &scan);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return no_answer(std::strerror(errno));
    if (scan.walk_end <= at) return no_answer("a scan that does not get on");
    for (int i = 0; i < got; ++i) pages += (ranges[i].end - ranges[i].start) / kBlockBytes;
    at = scan.walk_end;
  }
  return pages;
}

ckpt::Result<uint64_t> count_by_entries(ckpt::ByteView memory, Where not_in) {
  const uint64_t lacking = not_in == Where::kMemory ? kPresent : kPresent | kSwapped;
  uint64_t page = reinterpret_cast<uintptr_t>(memory.data()) / kBlockBytes;
  uint64_t left = (memory.size() + kBlockBytes - 1) / kBlockBytes;
  uint64_t absent = 0;
  std::array<uint64_t, 4096> entries;
  while (left > 0) {
    const size_t wanted = std::min<uint64_t>(left, entries.size()) * sizeof(uint64_t);
    const ssize_t got =
        ::pread(pagemap(), entries.data(), wanted, static_cast<off_t>(page * sizeof(uint64_t)));
    if (got < 0 && errno == EINTR) continue;
    if (got < static_cast<ssize_t>(sizeof(uint64_t))) {
      return no_answer(got < 0 ? std::strerror(errno) : "short read");
    }
    const size_t count = static_cast<size_t>(got) / sizeof(uint64_t);
    for (size_t i = 0; i < count; ++i) absent += (entries[i] & lacking) == 0 ? 1 : 0;
    page += count;
    left -= count;
  }
  return absent;
}

// Pages of the range whose page table entry does not say that they are there.
ckpt::Result<uint64_t> count_pages(ckpt::ByteView memory, Where not_in, PageTableWay way) {
  if (way == PageTableWay::kEntries) return count_by_entries(memory, not_in);
  const uint64_t lacking = not_in == Where::kMemory ? kScanPresent : kScanPresent | kScanSwapped;
  return count_by_scan(memory, lacking, /*inverted=*/lacking);
}

PageTableWay fastest_way() {
  static const PageTableWay way =
      page_guard_available(PageTableWay::kScan) ? PageTableWay::kScan : PageTableWay::kEntries;
  return way;
}

}  // namespace

// Tests with an own page, which is certainly present.
bool page_guard_available(PageTableWay way) {
  alignas(kBlockBytes) static std::array<std::byte, kBlockBytes> page{};
  std::memset(page.data(), 1, page.size());
  const auto absent = absent_pages(page, way);
  return absent.ok() && *absent == 0 && ::sysconf(_SC_PAGESIZE) == long{kBlockBytes};
}

bool page_guard_available() {
  static const bool available = page_guard_available(PageTableWay::kEntries);
  return available;
}

ckpt::Result<uint64_t> absent_pages(ckpt::ByteView memory, PageTableWay way) {
  return count_pages(memory, Where::kMemoryOrSwap, way);
}

ckpt::Result<uint64_t> absent_pages(ckpt::ByteView memory) {
  return absent_pages(memory, fastest_way());
}

uint64_t huge_bytes(ckpt::ByteView memory) {
  if (fastest_way() != PageTableWay::kScan) return 0;
  const auto pages = count_by_scan(memory, kScanHuge, /*inverted=*/0);
  return pages.ok() ? *pages * kBlockBytes : 0;
}

namespace {

// Memory of the pool is there already. The kernel takes 2.3 ms to find that out for 64 MiB.
bool is_faulted_in(ckpt::ByteView memory) {
  const auto missing = count_pages(memory, Where::kMemory, fastest_way());
  return missing.ok() && *missing == 0;
}

ckpt::Status fault_in(ckpt::MutableByteView memory, int advice) {
  if (is_faulted_in(memory)) return {};
  while (::madvise(memory.data(), memory.size(), advice) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) {
      return make_error(ErrorCode::kResourceExhausted, "faulting in {} bytes of arena: {}",
                        memory.size(), std::strerror(errno));
    }
    // Before Linux 5.14: one atomic write per page that keeps the byte, whatever a client does.
    for (uint64_t at = 0; at < memory.size(); at += kBlockBytes) {
      __atomic_fetch_or(reinterpret_cast<uint8_t*>(memory.data() + at), 0, __ATOMIC_RELAXED);
    }
    break;
  }
  return {};
}

}  // namespace

ckpt::Status populate(ckpt::MutableByteView memory) {
  return fault_in(memory, MADV_POPULATE_WRITE);
}

// A read fault maps existing pages of shared memory 16 at a time, and writable.
ckpt::Status populate(ckpt::MutableByteView guard, ckpt::MutableByteView view) {
  if (!is_faulted_in(guard)) make_huge_pages(guard);
  CKPT_TRY(populate(guard));
  return fault_in(view, MADV_POPULATE_READ);
}

}  // namespace ckptd
