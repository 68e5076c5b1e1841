#include "ckptd/io/fixed_buffers.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

bool FixedBuffers::init(io_uring* ring) {
  if (io_uring_register_buffers_sparse(ring, kSlots) != 0) return false;
  ring_ = ring;
  for (unsigned slot = kSlots; slot > 0; --slot) free_slots_.push_back(slot - 1);
  return true;
}

Status FixedBuffers::set_slot(unsigned slot, const iovec& memory) {
  const __u64 tag = 0;  // 0: no completion when the slot is replaced
  const int result = io_uring_register_buffers_update_tag(ring_, slot, &memory, &tag, 1);
  if (result == 1) return {};
  return make_error(ErrorCode::kUnavailable, "registering {} bytes with io_uring: {}",
                    memory.iov_len, std::strerror(result < 0 ? -result : EINVAL));
}

Result<BufferId> FixedBuffers::add(MutableByteView memory) {
  if (ring_ == nullptr) {
    return make_error(ErrorCode::kUnavailable, "this kernel has no sparse io_uring buffer tables");
  }
  const size_t slots = (memory.size() + kSlotBytesMax - 1) / kSlotBytesMax;
  if (slots == 0 || slots > free_slots_.size()) {
    return make_error(ErrorCode::kUnavailable, "io_uring buffer table: {} of {} slots are free",
                      free_slots_.size(), kSlots);
  }
  Buffer buffer{memory, {}};
  for (size_t i = 0; i < slots; ++i) {
    const uint64_t begin = i * kSlotBytesMax;
    const iovec piece{memory.data() + begin,
                      std::min<uint64_t>(kSlotBytesMax, memory.size() - begin)};
    const Status status = set_slot(free_slots_.back(), piece);
    if (!status.ok()) {
      for (const unsigned slot : buffer.slots) {
        (void)set_slot(slot, iovec{nullptr, 0});
        free_slots_.push_back(slot);
      }
      return status.error();
    }
    buffer.slots.push_back(free_slots_.back());
    free_slots_.pop_back();
  }
  const BufferId id = next_++;
  buffers_.emplace(id, std::move(buffer));
  return id;
}

void FixedBuffers::remove(BufferId id) {
  const auto found = buffers_.find(id);
  CKPT_ASSERT_MSG(found != buffers_.end(), "unregistering a buffer that is not registered");
  for (const unsigned slot : found->second.slots) {
    CKPT_ASSERT(set_slot(slot, iovec{nullptr, 0}).ok());
    free_slots_.push_back(slot);
  }
  buffers_.erase(found);
}

FixedBuffers::Place FixedBuffers::find(BufferId id, const std::byte* address) const {
  const auto found = buffers_.find(id);
  CKPT_ASSERT_MSG(found != buffers_.end(), "I/O from a buffer that is not registered");
  const Buffer& buffer = found->second;
  const uint64_t offset = static_cast<uint64_t>(address - buffer.memory.data());
  CKPT_ASSERT_MSG(offset < buffer.memory.size(), "I/O outside of its registered buffer");
  const uint64_t index = offset / kSlotBytesMax;
  const uint64_t slot_end = std::min<uint64_t>((index + 1) * kSlotBytesMax, buffer.memory.size());
  return {.slot = static_cast<int>(buffer.slots[index]), .bytes = slot_end - offset};
}

}  // namespace ckptd
