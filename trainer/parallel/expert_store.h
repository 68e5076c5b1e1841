// ExpertStore: who holds the experts' state, and how a layer gets the experts of its slots.
//
// Two ways to hold expert state share this interface. `replicated`: a slot owns weights, gradient
// and moments of its expert; acquire() only hands out pointers. `sharded` (to come): every rank
// owns 1/N of every expert, acquire() gathers weights from all ranks and give_gradients() scatters
// the gradients back. The model calls both the same way and knows neither.
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

  // The slots of this rank in `layer`, in slot order, ready to compute with. A collective: every
  // rank calls it for the same layers in the same order. The span is valid until the next call.
  virtual Result<std::span<const ExpertTensors>> acquire(Comm& comm, uint32_t layer) = 0;

  // The gradients of the slots acquired for `layer` have this micro-batch's part added; brings them
  // to the owners. A collective. Afterwards an owner's Parameter::grad is complete for the tokens
  // of all ranks.
  virtual Status give_gradients(Comm& comm, uint32_t layer) = 0;

  // The experts this rank owns, ascending by (layer, expert): what the optimizer updates and what a
  // snapshot of this rank saves. Restored state is written into their buffers in place.
  virtual std::span<Expert> owned() = 0;
};

// Every expert's state in its slot on the rank that the (valid) placement says, in memory of
// `device`, which outlives the store. Buffers are zero.
Result<std::unique_ptr<ExpertStore>> make_replicated_store(Device& device,
                                                           const ModelConfig& config,
                                                           const ExpertPlacement& placement,
                                                           uint32_t rank);

}  // namespace moetrain
