// FixedBuffers: the ring's table of registered memory.
//
// The table is created sparse, once (a second io_uring_register_buffers would fail with EBUSY).
// Slots are filled and emptied as arenas are added and removed. The kernel takes at most 1 GiB per
// slot, so a BufferId is a run of slots.
#pragma once

#include <liburing.h>

#include <unordered_map>
#include <vector>

#include "ckptd/io/disk.h"

namespace ckptd {

class FixedBuffers {
 public:
  // Slots of the table: at 1 GiB each far more than any arena needs.
  static constexpr unsigned kSlots = 4096;
  static constexpr uint64_t kSlotBytesMax = 1ull << 30;

  // False if the kernel has no sparse tables: nothing can be registered then.
  bool init(io_uring* ring);
  Result<BufferId> add(MutableByteView memory);
  // Requests in flight keep their pages pinned until they complete; the kernel counts references.
  void remove(BufferId buffer);

  // The slot for an address of the buffer, and the number of bytes from there to the slot's end.
  struct Place {
    int slot = 0;
    uint64_t bytes = 0;
  };
  Place find(BufferId buffer, const std::byte* address) const;

 private:
  struct Buffer {
    MutableByteView memory;
    std::vector<unsigned> slots;
  };
  Status set_slot(unsigned slot, const iovec& memory);

  io_uring* ring_ = nullptr;  // null: registration is unavailable
  std::vector<unsigned> free_slots_;
  std::unordered_map<BufferId, Buffer> buffers_;
  BufferId next_ = 1;
};

}  // namespace ckptd
