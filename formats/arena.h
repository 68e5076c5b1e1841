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
// A fragment this large starts at a block boundary of its slab, so that reads of it are aligned.
inline constexpr uint64_t kAlignedFragmentBytes = 64ull << 10;

// Whether `fd` is shared memory with the seals of an arena. Safe for any descriptor: it asks no
// file system but the kernel's own (tmpfs), so that it cannot block as fstat() on FUSE or NFS can.
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
  // The same, of a size that is not final: for memory that is made before anybody asks for it.
  static Result<Created> create_unsealed(const ArenaLayout& layout);
  static Result<ArenaMapping> map_unsealed(int fd, const ArenaLayout& layout);
  // Makes it an arena of that layout. Its mappings must be remap()ped before they are used again.
  static Status resize_and_seal(int fd, const ArenaLayout& layout);
  // Follows a resize. Pages that are in both stay faulted in; the address may change.
  Status remap(const ArenaLayout& layout);
  // Maps a memfd that came over a socket, after checking that it is one: kind, seals, exact size.
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
