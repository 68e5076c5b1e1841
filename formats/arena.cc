#include "formats/arena.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "formats/base/address_space.h"
#include "formats/base/checked.h"
#include "formats/base/ids.h"
#include "formats/base/open_files.h"
#include "formats/base/parse.h"

namespace ckpt {
namespace {

// Shrinking would turn loads into SIGBUS, growing would hide bytes from the checks, and a further
// seal against writing would stop the trainer's saves.
constexpr int kSealsWanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int kSealsRefused = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;

Error system_error(std::string_view what) {
  const int error = errno;
  ErrorCode code = ErrorCode::kIo;
  if (error == ENOMEM || error == ENOSPC) code = ErrorCode::kResourceExhausted;
  // Neither a smaller arena nor a retry helps.
  if (error == EMFILE || error == ENFILE) code = ErrorCode::kFailedPrecondition;
  return make_error(code, "arena: {}: {}{}{}", what, std::strerror(error),
                    base::open_files_hint(error),
                    error == ENOMEM ? base::address_space_hint() : "");
}

Error cannot_map(uint64_t bytes) { return system_error(fmt::format("cannot map {} bytes", bytes)); }

// Address space for a mapping, aligned for huge pages. The mapping replaces it. If that fails, the
// addresses stay reserved: the kernel may have given them to another thread's mapping already.
Result<std::byte*> reserve_addresses(uint64_t bytes) {
  const uint64_t spare = bytes < kHugePageBytes ? 0 : kHugePageBytes;
  void* const reserved = ::mmap(nullptr, bytes + spare, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, 0);
  if (reserved == MAP_FAILED) return cannot_map(bytes);
  auto* const first = static_cast<std::byte*>(reserved);
  if (spare == 0) return first;
  const auto address = reinterpret_cast<uintptr_t>(first);
  const uint64_t before = base::align_up(address, kHugePageBytes) - address;
  const uint64_t end = base::align_up(before + bytes, kBlockBytes);
  if (before > 0) ::munmap(first, before);
  if (end < bytes + spare) ::munmap(first + end, bytes + spare - end);
  return first + before;
}

Result<MutableByteView> map_shared(int fd, uint64_t bytes) {
  CKPT_ASSIGN(std::byte* const wanted, reserve_addresses(bytes));
  void* at = ::mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  if (at == MAP_FAILED) return cannot_map(bytes);
  // A forked child (a data loader) must neither keep the arena alive nor copy its page tables.
  if (::madvise(at, bytes, MADV_DONTFORK) != 0) {
    const Error error = system_error("madvise(MADV_DONTFORK)");
    ::munmap(at, bytes);
    return error;
  }
  return MutableByteView(static_cast<std::byte*>(at), bytes);
}

// In place if there is room, else at another aligned address.
Result<MutableByteView> resize_mapping(MutableByteView mapped, uint64_t bytes) {
  void* at = ::mremap(mapped.data(), mapped.size(), bytes, 0);
  if (at == MAP_FAILED) {
    CKPT_ASSIGN(std::byte* const wanted, reserve_addresses(bytes));
    at = ::mremap(mapped.data(), mapped.size(), bytes, MREMAP_MAYMOVE | MREMAP_FIXED, wanted);
    if (at == MAP_FAILED) return cannot_map(bytes);
  }
  return MutableByteView(static_cast<std::byte*>(at), bytes);
}

// The kernel also applies the file size limit to shared memory, and would send SIGXFSZ.
Status check_file_size_limit(uint64_t bytes) {
  rlimit size{};
  const bool limited = ::getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur != RLIM_INFINITY;
  if (!limited || size.rlim_cur >= bytes) return ok_status();
  return make_error(ErrorCode::kResourceExhausted,
                    "arena of {}: files and shared memory may have at most {} here (ulimit -f); "
                    "raise the limit or ask for a smaller arena",
                    base::format_size(bytes), base::format_size(size.rlim_cur));
}

Status resize(int fd, uint64_t bytes) {
  CKPT_TRY(check_file_size_limit(bytes));
  if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0) return ok_status();
  return system_error(fmt::format("cannot size the memory to {} bytes", bytes));
}

Status check_memfd(int fd, const ArenaLayout& layout) {
  CKPT_TRY(check_arena_seals(fd));
  struct statfs filesystem {};
  struct stat status {};
  if (::fstatfs(fd, &filesystem) != 0 || ::fstat(fd, &status) != 0) return system_error("stat");
  if (filesystem.f_type != TMPFS_MAGIC || !S_ISREG(status.st_mode)) {
    return make_error(ErrorCode::kInvalidArgument, "arena: the descriptor is not shared memory");
  }
  if (static_cast<uint64_t>(status.st_size) != layout.arena_bytes()) {
    return make_error(ErrorCode::kInvalidArgument, "arena: the memory has {} bytes, expected {}",
                      status.st_size, layout.arena_bytes());
  }
  return ok_status();
}

}  // namespace

Status check_arena_seals(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return make_error(ErrorCode::kInvalidArgument, "arena: the descriptor is not shared memory");
  }
  if ((seals & kSealsWanted) != kSealsWanted || (seals & kSealsRefused) != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "arena: the memory has seals {:#x}, wanted are {:#x} and none of {:#x}",
                      seals, kSealsWanted, kSealsRefused);
  }
  return ok_status();
}

Status validate(const ArenaLayout& layout) {
  if (layout.slab_bytes < kSlabBytesMin || layout.slab_bytes > kSlabBytesMax ||
      !base::is_aligned(layout.slab_bytes, kBlockBytes)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "an arena cannot have slabs of {} bytes (slab_bytes): give a multiple of {} "
                      "from {} to {}, or 0 to let ckptd choose",
                      layout.slab_bytes, base::format_size(kBlockBytes),
                      base::format_size(kSlabBytesMin), base::format_size(kSlabBytesMax));
  }
  if (layout.slab_count == 0) {
    return make_error(ErrorCode::kInvalidArgument, "arena: no slabs");
  }
  return ok_status();
}

ArenaMapping::ArenaMapping(ArenaMapping&& other) noexcept
    : layout_(std::exchange(other.layout_, {})), bytes_(std::exchange(other.bytes_, {})) {}

ArenaMapping& ArenaMapping::operator=(ArenaMapping&& other) noexcept {
  // The old mapping goes when `taken` does.
  ArenaMapping taken(std::move(other));
  std::swap(layout_, taken.layout_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

ArenaMapping::~ArenaMapping() {
  if (bytes_.data() != nullptr) ::munmap(bytes_.data(), bytes_.size());
}

Result<ArenaMapping::Created> ArenaMapping::create(const ArenaLayout& layout) {
  CKPT_ASSIGN(Created created, create_unsealed(layout));
  CKPT_TRY(resize_and_seal(created.fd.get(), layout));
  return created;
}

Result<ArenaMapping::Created> ArenaMapping::create_unsealed(const ArenaLayout& layout) {
  CKPT_TRY(validate(layout));
  Created created{
      .fd = base::UniqueFd(::memfd_create("ckpt-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
      .mapping = {}};
  if (!created.fd.valid()) return system_error("memfd_create");
  CKPT_TRY(resize(created.fd.get(), layout.arena_bytes()));
  CKPT_ASSIGN(created.mapping, map_unsealed(created.fd.get(), layout));
  return created;
}

Result<ArenaMapping> ArenaMapping::map_unsealed(int fd, const ArenaLayout& layout) {
  ArenaMapping mapping;
  CKPT_ASSIGN(mapping.bytes_, map_shared(fd, layout.arena_bytes()));
  mapping.layout_ = layout;
  return mapping;
}

Status ArenaMapping::resize_and_seal(int fd, const ArenaLayout& layout) {
  CKPT_TRY(validate(layout));
  CKPT_TRY(resize(fd, layout.arena_bytes()));
  if (::fcntl(fd, F_ADD_SEALS, kSealsWanted) != 0) return system_error("F_ADD_SEALS");
  return ok_status();
}

Status ArenaMapping::remap(const ArenaLayout& layout) {
  if (layout.arena_bytes() != bytes_.size()) {
    CKPT_ASSIGN(bytes_, resize_mapping(bytes_, layout.arena_bytes()));
  }
  layout_ = layout;
  return ok_status();
}

Result<ArenaMapping> ArenaMapping::map(int fd, const ArenaLayout& layout) {
  CKPT_TRY(validate(layout));
  CKPT_TRY(check_memfd(fd, layout));
  return map_unsealed(fd, layout);
}

MutableByteView ArenaMapping::slab(uint32_t slab) const {
  CKPT_ASSERT(slab < layout_.slab_count);
  return bytes_.subspan(layout_.slab_offset(slab), layout_.slab_bytes);
}

}  // namespace ckpt
