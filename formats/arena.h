// Arena: the shared memory of one session, an anonymous file that the daemon creates and the client
// maps. It is cut into slabs of one size; there is nothing else in it. All bookkeeping is private
// to the daemon, so nothing a client writes into it is ever trusted.
#pragma once

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckpt {

inline constexpr uint64_t kSlabBytesDefault = 64ull << 20;
inline constexpr uint64_t kSlabBytesMin = 64ull << 10;
inline constexpr uint64_t kSlabBytesMax = 1ull << 30;
// Bytes of a huge page on x86-64, and on arm64 with pages of 4 KiB. Larger arenas are mapped at
// multiples of it, so that the kernel can map a huge page by one page table entry.
inline constexpr uint64_t kHugePageBytes = 2ull << 20;
// A fragment this large starts at a block boundary of its slab, so that reads of it are aligned.
inline constexpr uint64_t kAlignedFragmentBytes = 64ull << 10;

// Checks that `fd` is shared memory with the seals of an arena. Safe for any descriptor: it asks
// only the kernel's own file system (tmpfs), so it cannot block as fstat() on FUSE or NFS can.
Status check_arena_seals(int fd);

struct ArenaLayout {
  uint64_t slab_bytes = kSlabBytesDefault;
  uint32_t slab_count = 0;
  uint64_t arena_bytes() const { return slab_bytes * slab_count; }
  uint64_t slab_offset(uint32_t slab) const { return slab_bytes * slab; }
};
Status validate(const ArenaLayout& layout);

// An owned shared mapping of a whole arena.
class ArenaMapping {
 public:
  ArenaMapping() = default;
  ArenaMapping(ArenaMapping&& other) noexcept;
  ArenaMapping& operator=(ArenaMapping&& other) noexcept;
  ~ArenaMapping();

  // Creates the memfd, sealed against shrinking, growing and further seals, not yet faulted in.
  struct Created;
  static Result<Created> create(const ArenaLayout& layout);
  // The same, but of a provisional size, for memory that is prepared before a session requests it.
  static Result<Created> create_unsealed(const ArenaLayout& layout);
  static Result<ArenaMapping> map_unsealed(int fd, const ArenaLayout& layout);
  // Turns the memfd into an arena of that layout. Call remap() on its mappings before their next
  // use.
  static Status resize_and_seal(int fd, const ArenaLayout& layout);
  // Adapts the mapping to a resize. Common pages stay faulted in; the address may change.
  Status remap(const ArenaLayout& layout);
  // Maps a memfd received from a socket, after checking its kind, seals and exact size.
  static Result<ArenaMapping> map(int fd, const ArenaLayout& layout);

  MutableByteView bytes() const { return bytes_; }
  MutableByteView slab(uint32_t slab) const;
  const ArenaLayout& layout() const { return layout_; }

 private:
  ArenaLayout layout_;
  MutableByteView bytes_;
};

struct ArenaMapping::Created {
  base::UniqueFd fd;
  ArenaMapping mapping;
};

}  // namespace ckpt
