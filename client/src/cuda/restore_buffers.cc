#include "client/src/cuda/restore_buffers.h"

#include <algorithm>

namespace ckpt::lib {

namespace {

// Grows to at least twice the size, so that there are few outgrown arrays, and keeps the old array.
template <typename Array>
Status grow(Array& array, size_t size, std::vector<Array>& outgrown) {
  if (array.size() >= size) return ok_status();
  CKPT_ASSIGN(Array larger, Array::make(std::max(size, 2 * array.size())));
  outgrown.push_back(std::exchange(array, std::move(larger)));
  return ok_status();
}

}  // namespace

Status RestoreSlot::make_events() {
  CKPT_TRY(copied.make());
  return unpacked.make();
}

Status RestoreSlot::fit(const RestoreSlotSize& size, uint64_t bytes_max) {
  if (memory.size() < size.bytes) {
    const uint64_t wanted = std::min<uint64_t>(2 * memory.size(), bytes_max);
    CKPT_ASSIGN(auto larger,
                kernels::DeviceArray<std::byte>::make(std::max<uint64_t>(size.bytes, wanted)));
    registered = {};
    outgrown_.memory.push_back(std::exchange(memory, std::move(larger)));
  }
  CKPT_TRY(grow(tables, size.table_bytes, outgrown_.tables));
  return grow(crc, size.crcs, outgrown_.crc);
}

Result<std::unique_ptr<RestoreBuffers>> RestoreBuffers::make(int device, uint32_t timeout_ms) {
  std::unique_ptr<RestoreBuffers> buffers(new RestoreBuffers);
  CKPT_TRY(buffers->prepare(device, timeout_ms));
  return buffers;
}

Status RestoreBuffers::prepare(int device, uint32_t timeout_ms) {
  const kernels::CudaQueueOptions queue{.device = device, .timeout_ms = timeout_ms};
  CKPT_ASSIGN(copy_, kernels::make_cuda_queue(queue));
  CKPT_ASSIGN(unpack_, kernels::make_cuda_queue(queue));
  for (RestoreSlot& slot : slots_) CKPT_TRY(slot.make_events());
  return begun_.make();
}

void RestoreBuffers::drop_outgrown() {
  for (RestoreSlot& slot : slots_) slot.drop_outgrown();
}

}  // namespace ckpt::lib
