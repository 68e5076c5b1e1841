// Drains: the chunks queued for draining, in order, and the slots of the gather buffer that they
// occupy until they are drained.
//
//   number   0   1   2   3   4   5   6   7       0, 1: drained, their slots are free
//   slot     0   1   -   2   -   3   0   1       2 and 4 are direct and have none
//            drained | open                      6 waits for 0, 7 for 1
//
// Slots are allocated as a ring, across snapshots. A slot is free when its last chunk has been
// drained.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/cuda/event.h"

namespace ckpt::lib {

// Recycled events. An event lives as long as the pool.
class EventPool {
 public:
  Result<kernels::CudaEvent> take();
  void release(kernels::CudaEvent event);

 private:
  std::vector<kernels::CudaEvent> spare_;  // has room for all events
  size_t made_ = 0;
};

class Drains {
 public:
  // `slots`: number of slots in the gather buffer. One stream drains them. `events` outlives this.
  Drains(EventPool& events, size_t slots) : events_(events), slots_(slots) {}

  size_t slots() const { return slots_; }
  // Number of chunks drained so far, and the number of the next chunk to be queued.
  uint64_t drained() const { return drained_; }
  uint64_t next() const { return drained_ + open_.size(); }
  size_t open() const { return open_.size(); }
  // Slot of the next chunk that needs one.
  size_t next_slot() const { return static_cast<size_t>(taken_ % slots_); }

  // Makes the stream wait until the next `count` slots are free; at most slots().
  Status hold_for_slots(size_t count, CUstream_st* stream) const;
  // Makes the stream wait until that chunk, already queued, is drained.
  Status hold_for(uint64_t number, CUstream_st* stream) const;
  // Adds a chunk: it is drained when the work queued on the stream so far is done.
  Status add(CUstream_st* stream, bool in_slot);
  // Counts chunks drained since the last call. Returns any error of the device's earlier work.
  Status poll();
  // Drops all open chunks. Precondition: the device no longer works on them.
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
