// ExpertStore: who holds the experts' state, and how a layer gets the experts of its slots.
//
// Two ways to hold expert state share this interface. `replicated`: every holder of an expert owns
// weights, gradient and moments of it; acquire() only hands out pointers, and replicas stay the
// same because they get the same gradient (parallel/replica_gradients.h) and update alike.
// `sharded` (to come): every rank owns 1/N of every expert, acquire() gathers weights from all
// ranks and give_gradients() scatters the gradients back. The model calls both the same way and
// knows neither.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/model/parameter.h"
#include "trainer/parallel/comm.h"
#include "trainer/parallel/expert_placement.h"

namespace moetrain {

// The state of one expert that this rank owns: it updates it, saves it, restores it.
struct Expert {
  uint32_t layer = 0;
  uint32_t expert = 0;
  Parameter w1;  // [intermediate, hidden], gate
  Parameter w2;  // [hidden, intermediate], down
  Parameter w3;  // [intermediate, hidden], up
};

// One per rank, used from that rank's thread.
class ExpertStore {
 public:
  virtual ~ExpertStore() = default;

  virtual const ExpertPlacement& placement() const = 0;

  // The experts of this rank in `layer`, ascending, each once (experts_of_rank()), ready to compute
  // with. A collective: every rank calls it for the same layers in the same order. The span is
  // valid until the next call.
  virtual Result<std::span<const ExpertTensors>> acquire(Comm& comm, uint32_t layer) = 0;

  // The gradients of the experts acquired for `layer` have this micro-batch's part added; brings
  // them to the owners. A collective. Afterwards the sum() of an owner's Parameter holds all tokens
  // that came to this rank.
  virtual Status give_gradients(Comm& comm, uint32_t layer) = 0;

  // The experts this rank owns, ascending by (layer, expert): what the optimizer updates and what a
  // snapshot of this rank saves. Restored state is written into their buffers in place.
  virtual std::span<Expert> owned() = 0;

  // Gives all owned experts away, for a store under another placement. The store is of no use then.
  virtual std::vector<Expert> release() = 0;
};

// The state of every expert that the (valid) placement gives to `rank`, in memory of `device`,
// which outlives the store. Buffers are zero.
Result<std::unique_ptr<ExpertStore>> make_replicated_store(Device& device,
                                                           const ModelConfig& config,
                                                           const ExpertPlacement& placement,
                                                           uint32_t rank);

// The same from what another store of this model and device has released: an expert that it had
// stays where it is, with all its values. Others get the memory of those that are not wanted any
// more, or new memory; their buffers are zero. Pointers to moved experts' parameters change, their
// buffers' addresses do not.
Result<std::unique_ptr<ExpertStore>> make_replicated_store(Device& device,
                                                           const ModelConfig& config,
                                                           const ExpertPlacement& placement,
                                                           uint32_t rank,
                                                           std::vector<Expert> released);

}  // namespace moetrain
