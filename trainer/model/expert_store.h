// ExpertStore: how a layer of the model gets the weights of the experts that this rank computes,
// and where their gradients go. The model calls every store the same way; stores are made by
// make_expert_store() (parallel/make_expert_store.h).
//
// A step, as the store sees it:
//
//   begin_step
//   for each micro-batch:
//     acquire(layer, kForward)                          for each layer, ascending
//     acquire(layer, kBackward), give_gradients(layer)  for each layer, descending
//   reduce_gradients                                    then the optimizer updates owned()
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/device/device.h"
#include "trainer/model/expert_schedule.h"
#include "trainer/model/parameter.h"
#include "trainer/model/step_profile.h"
#include "trainer/placement/compute_placement.h"
#include "trainer/placement/ownership.h"

namespace moetrain {

// The pass that experts are acquired for. Only backward adds to gradients.
enum class Pass : uint8_t { kForward, kBackward };

// Bytes that this rank received from others since begin_step(), by kind.
struct ExpertTraffic {
  uint64_t weights = 0;    // sharded: parts of the experts that it computes
  uint64_t gradients = 0;  // parts for the owner to add up; replicated: their sums, too
  bool operator==(const ExpertTraffic&) const = default;
};

// One per rank, used from that rank's thread. Collectives are called by every rank for the same
// layers in the same order; sharded stores run some of them on the communicator's thread, if it has
// one (comm/comm_thread.h), between the call and a later one. After a failed one gradients are
// undefined until begin_step(); owned weights and moments are untouched.
class ExpertStore {
 public:
  virtual ~ExpertStore() = default;

  // The ranks that compute each expert, and the ranks that hold its state.
  virtual const ComputePlacement& placement() const = 0;
  virtual const Ownership& ownership() const = 0;
  // Uses another placement from the next step on. Every rank calls this with the same placement,
  // between steps. kFailedPrecondition, and nothing changed, if state would have to move.
  virtual Status set_placement(const ComputePlacement& next) = 0;

  // Schedule of the exchanges of sharded experts from the next step on, and the profile that
  // records them, which outlives the store. Replicated experts are not exchanged.
  virtual void set_schedule(const ExpertSchedule& schedule, StepProfile& profile) = 0;

  // Zeroes the gradients and traffic().
  virtual void begin_step() = 0;

  // The experts that this rank computes in `layer`, ascending, each once (experts_of_rank()), ready
  // to compute with. A collective. The span and its tensors are valid until the next acquire().
  virtual Result<std::span<const ExpertTensors>> acquire(Comm& comm, uint32_t layer, Pass pass) = 0;

  // Sends the gradients of the last acquired experts, those of `layer`, to their owners. Backward
  // has added this micro-batch's part to them. A collective.
  virtual Status give_gradients(Comm& comm, uint32_t layer) = 0;

  // Call this after the last micro-batch: sums every owned range's gradient over all ranks into
  // `grad`, rounded once. A collective.
  virtual Status reduce_gradients(Comm& comm) = 0;

  // The state that this rank owns, ascending by (layer, expert): the optimizer updates it, a
  // snapshot of this rank saves it. Restored state is written into its buffers in place.
  virtual std::span<OwnedRange> owned() = 0;

  // Returns all owned state, and frees the rest. Do not use the store afterwards.
  virtual std::vector<OwnedRange> release() = 0;

  virtual ExpertTraffic traffic() const = 0;
  // Device memory of all expert tensors: owned state and, sharded, buffers, which never shrink, so
  // that this is the most there was. Between steps.
  virtual uint64_t memory_bytes() const = 0;
  // The most that memory_bytes() can be. Replicated: 0, there is no bound.
  virtual uint64_t memory_bound() const = 0;
};

}  // namespace moetrain
