#include "ckptd/staging/page_guard.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "formats/base/ids.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

namespace {

using ckpt::ErrorCode;
using ckpt::kBlockBytes;
using ckpt::make_error;

// Bits of a pagemap entry (Documentation/admin-guide/mm/pagemap.rst): in memory, or swapped or on
// its way to another place.
constexpr uint64_t kPresent = 1ull << 63;
constexpr uint64_t kSwapped = 1ull << 62;

int pagemap() {
  static const ckpt::base::UniqueFd fd(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  return fd.get();
}

}  // namespace

bool page_guard_available() {
  // A page of our own stack is there, whatever else is.
  alignas(kBlockBytes) static std::array<std::byte, kBlockBytes> page{};
  std::memset(page.data(), 1, page.size());
  const auto absent = absent_pages(page);
  return absent.ok() && *absent == 0 && ::sysconf(_SC_PAGESIZE) == long{kBlockBytes};
}

ckpt::Result<uint64_t> absent_pages(ckpt::ByteView memory) {
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
      return make_error(ErrorCode::kUnavailable, "/proc/self/pagemap: {}",
                        got < 0 ? std::strerror(errno) : "short read");
    }
    const size_t count = static_cast<size_t>(got) / sizeof(uint64_t);
    for (size_t i = 0; i < count; ++i) absent += (entries[i] & (kPresent | kSwapped)) == 0 ? 1 : 0;
    page += count;
    left -= count;
  }
  return absent;
}

ckpt::Status populate(ckpt::MutableByteView memory) {
  while (::madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) {
      return make_error(ErrorCode::kResourceExhausted, "faulting in {} bytes of arena: {}",
                        memory.size(), std::strerror(errno));
    }
    // Before Linux 5.14: one atomic write per page that changes nothing, whatever a client does.
    for (uint64_t at = 0; at < memory.size(); at += kBlockBytes) {
      __atomic_fetch_or(reinterpret_cast<uint8_t*>(memory.data() + at), 0, __ATOMIC_RELAXED);
    }
    break;
  }
  return {};
}

}  // namespace ckptd
