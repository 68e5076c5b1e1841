#include "client/src/cuda/drains.h"

#include <algorithm>
#include <utility>

namespace ckpt::lib {

Result<kernels::CudaEvent> EventPool::take() {
  if (!spare_.empty()) {
    kernels::CudaEvent event = std::move(spare_.back());
    spare_.pop_back();
    return event;
  }
  // Reserve room for every event: release() must not fail.
  if (spare_.capacity() <= made_) spare_.reserve(2 * made_ + 1);
  kernels::CudaEvent event;
  CKPT_TRY(event.make());
  ++made_;
  return event;
}

void EventPool::release(kernels::CudaEvent event) { spare_.push_back(std::move(event)); }

Status Drains::hold_for_slots(size_t count, CUstream_st* stream) const {
  if (taken_ + count <= freed_ + slots_) return ok_status();
  // Slots become free in order: wait for the chunk that has the last of them.
  const uint64_t wanted = taken_ + count - slots_;
  const auto last = std::partition_point(open_.begin(), open_.end(),
                                         [&](const Open& one) { return one.taken < wanted; });
  return last->drained.hold(stream);
}

Status Drains::hold_for(uint64_t number, CUstream_st* stream) const {
  return number < drained_ ? ok_status() : open_[number - drained_].drained.hold(stream);
}

Status Drains::add(CUstream_st* stream, bool in_slot) {
  CKPT_ASSIGN(kernels::CudaEvent drained, events_.take());
  taken_ += in_slot ? 1 : 0;
  open_.push_back({.taken = taken_, .drained = std::move(drained)});
  return open_.back().drained.record(stream);
}

Status Drains::poll() {
  while (!open_.empty()) {
    CKPT_ASSIGN(const bool here, open_.front().drained.happened());
    if (!here) break;  // the stream is in order
    pop();
  }
  return ok_status();
}

void Drains::forget() {
  while (!open_.empty()) pop();
}

void Drains::pop() {
  freed_ = open_.front().taken;
  events_.release(std::move(open_.front().drained));
  open_.pop_front();
  ++drained_;
}

}  // namespace ckpt::lib
