// Model: Mixtral, forward and backward, over this rank's share of a micro-batch.
//
// embed -> layers x [ RMSNorm -> grouped-query attention with RoPE -> + -> RMSNorm -> MoE -> + ]
// -> RMSNorm -> head. Same names, same numbers as Hugging Face's MixtralForCausalLM (eager
// attention, fp32); tests/golden compares them.
//
// One step of training, on every rank:
//
//   model.begin_step();
//   for each of the A micro-batches:
//     loss += model.forward_backward(comm, share, {1.0 / targets_of_global_batch, aux_coef / A});
//   reduce_gradients(comm, model);                           // parallel/gradients.h
//   summary = summarise_gradients(comm, model);              // skip the step if not finite
//   adamw_step(model, options, {rate, clip_factor(summary.norm, options.clip_norm), step});
//
// The loss and the gradients do not depend on how the ranks share a micro-batch: sequences are
// computed one by one, and added up in double (parallel/gradients.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/model/config.h"
#include "trainer/model/expert_store.h"
#include "trainer/model/parameter.h"
#include "trainer/model/router_trace.h"

namespace moetrain {

inline constexpr int32_t kIgnoredTarget = -100;  // this position has no loss, as in PyTorch

// This rank's sequences of one micro-batch, row-major [sequences, config.seq_len]; zero sequences
// are allowed as long as some rank has some. Targets are already shifted: targets[i] is what should
// follow tokens[i].
struct BatchShare {
  std::span<const int32_t> tokens;   // in [0, vocab)
  std::span<const int32_t> targets;  // in [0, vocab), or kIgnoredTarget
  uint64_t step = 0;                 // 0 for the first: forced routing may follow it
};

// Factors of the two parts of the loss, applied before gradients are taken.
struct LossScale {
  double cross_entropy = 0;  // 1 / (targets of the global batch): a mean over all its tokens
  double auxiliary = 0;      // aux_coef / (micro-batches of the global batch)
};

// Loss of one micro-batch over all ranks; the same bits on every rank. Add up
// scale.cross_entropy * cross_entropy_sum + scale.auxiliary * auxiliary to get the step's loss.
struct MicroBatchLoss {
  double cross_entropy_sum = 0;  // nats, summed over targets
  int64_t targets = 0;           // not ignored
  double auxiliary = 0;          // E * sum_{k,e} f_{k,e} P_e, not multiplied by its coefficient
};

// Work of all ranks' experts since begin_step(), in rows: (token, expert) pairs.
struct ExpertLoad {
  int64_t rows = 0;
  // Rows of the busiest rank, summed over layers and micro-batches: all others wait for it in each.
  int64_t busiest_rows = 0;
  // 1: perfectly even.
  double max_over_mean(uint32_t ranks) const {
    return rows == 0 ? 1 : static_cast<double>(busiest_rows) * ranks / static_cast<double>(rows);
  }
  bool operator==(const ExpertLoad&) const = default;
};

// Bytes received from other ranks since begin_step(), by kind.
struct StepTraffic {
  uint64_t tokens = 0;     // rows of tokens, to experts and back, and their gradients
  uint64_t weights = 0;    // ExpertTraffic
  uint64_t gradients = 0;  // ExpertTraffic
  bool operator==(const StepTraffic&) const = default;
};

// Work of this rank's experts since begin_step().
struct ExpertWork {
  int64_t rows = 0;
  int64_t cpu_ns = 0;  // of the rank's thread, forward and backward; on a GPU no measure of it
};

// One per rank, used from one thread. Holds no communicator: the same model continues in the next
// epoch's group if its placement fits. After a failed call the gradients and counts are undefined;
// parameters are untouched. Start the step again with begin_step().
class Model {
 public:
  // `store` holds the experts of this rank under its placement, in memory of `device`, which
  // outlives the model. Sharded experts are exchanged by `schedule`, in this store and in those of
  // replace_experts(). `trace`: the one that the configuration follows, or null. Parameters are
  // zero until initialise() or until they are restored. Errors: kInvalidArgument, those of
  // ForcedRouting::make() among them.
  static Result<std::unique_ptr<Model>> create(Device& device, const ModelConfig& config,
                                               std::unique_ptr<ExpertStore> store,
                                               const ExpertSchedule& schedule = {},
                                               std::shared_ptr<const RouterTrace> trace = nullptr);
  virtual ~Model() = default;

  // Fresh parameters from a seed: see initialise() in parameter.h. Moments become zero.
  virtual void initialise(uint64_t seed) = 0;

  // Call this after code other than the optimizer wrote parameters, such as a restore.
  virtual void parameters_changed() = 0;

  virtual Device& device() = 0;
  virtual const ModelConfig& config() const = 0;
  virtual ExpertStore& experts() = 0;
  // Continues with another store of this model, such as one made from the released state of the
  // previous one for another placement. kInvalidArgument if it is of another shape.
  virtual Status replace_experts(std::unique_ptr<ExpertStore> store) = 0;
  // Replicated on every rank, in the order of dense_parameters().
  virtual std::span<Parameter> dense() = 0;
  // All state that this rank updates: every dense parameter, then of every owned range the parts of
  // w1, w2 and w3 in it. Valid until replace_experts().
  virtual std::vector<ParameterPart> parts() = 0;

  // Zeroes gradients and routing counts.
  virtual void begin_step() = 0;

  // Adds the gradients of `scale` x loss. A collective: every rank of `comm`, which must be the
  // group of the store's placement, calls it once per micro-batch. Errors: kInvalidArgument for a
  // token, target or length out of range, found before any collective (names the position);
  // otherwise whatever the communicator reports.
  virtual Result<MicroBatchLoss> forward_backward(Comm& comm, const BatchShare& share,
                                                  const LossScale& scale) = 0;

  // Loss only. If `logits` is not empty it receives this rank's [tokens, vocab]. A collective.
  // Gradients and routing counts stay as they are.
  virtual Result<MicroBatchLoss> evaluate(Comm& comm, const BatchShare& share,
                                          std::span<float> logits = {}) = 0;

  // Assignments of this rank's tokens (before dispatch) since begin_step(), [layers * experts].
  // Sum over all ranks: what each expert was given in this step.
  virtual std::span<const int64_t> routing_counts() const = 0;
  // The same on every rank.
  virtual ExpertLoad expert_load() const = 0;
  virtual ExpertWork expert_work() const = 0;
  // Bytes that this rank received.
  virtual StepTraffic traffic() const = 0;
  virtual StepProfile& profile() = 0;
};

// Every rank's routing_counts(), [ranks, layers * experts]. A collective.
Result<std::vector<int64_t>> gather_routing_counts(Comm& comm, const Model& model);

}  // namespace moetrain
