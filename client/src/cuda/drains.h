// Drains: the chunks that the device was asked to drain, in their order, and the slots of the
// gather buffer that they keep until they are.
//
//   number   0   1   2   3   4   5   6   7       0, 1: drained, their slots are free
//   slot     0   1   -   2   -   3   0   1       2 and 4 are direct and have none
//            drained | open                      6 waits for 0, 7 for 1
//
// Slots are taken in a ring, whosever chunk it is. A slot is free when the chunk that had it has
// been drained.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/cuda/event.h"

namespace ckpt::lib {

// Events to be used again. They are never destroyed before the pool is.
class EventPool {
 public:
  Result<kernels::CudaEvent> take();
  void release(kernels::CudaEvent event);

 private:
  std::vector<kernels::CudaEvent> spare_;  // has room for all there are
  size_t made_ = 0;
};

class Drains {
 public:
  // `slots`: of the gather buffer, whose chunks one stream drains. `events` outlives this.
  Drains(EventPool& events, size_t slots) : events_(events), slots_(slots) {}

  size_t slots() const { return slots_; }
  // How many chunks have been drained since the beginning, and the number of the next to be queued.
  uint64_t drained() const { return drained_; }
  uint64_t next() const { return drained_ + open_.size(); }
  size_t open() const { return open_.size(); }
  // The slot of the next chunk that has one.
  size_t next_slot() const { return static_cast<size_t>(taken_ % slots_); }

  // The stream goes on when the next `count` slots are free; at most slots().
  Status hold_for_slots(size_t count, CUstream_st* stream) const;
  // The stream goes on when that chunk, which has been queued, is drained.
  Status hold_for(uint64_t number, CUstream_st* stream) const;
  // The next chunk is drained when what is queued on the stream by now is done.
  Status add(CUstream_st* stream, bool in_slot);
  // Counts what has been drained meanwhile. The error of whatever has failed on the device.
  Status poll();
  // The device does nothing of what it was asked to do any more.
  void forget();

 private:
  struct Open {
    uint64_t taken = 0;  // slots, up to this chunk
    kernels::CudaEvent drained;
  };
  void pop();

  EventPool& events_;
  const size_t slots_;
  uint64_t drained_ = 0;
  uint64_t freed_ = 0;  // slots, of drained chunks
  uint64_t taken_ = 0;  // slots, of all chunks
  std::deque<Open> open_;
};

}  // namespace ckpt::lib
