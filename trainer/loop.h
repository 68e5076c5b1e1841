// The training step: work of every rank between two step boundaries.
//
// A global batch of A micro-batches of B sequences is divided among all ranks;
// loss and gradients do not depend on their number (parallel/gradients.h). A step whose loss
// or gradient is not finite changes no parameter and is counted.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trainer/model/model.h"
#include "trainer/parallel/gradients.h"
#include "trainer/train_config.h"

namespace moetrain {

// Sequences [first, first + count) of a micro-batch.
struct SequenceShare {
  uint64_t first = 0;
  uint64_t count = 0;
};
// Splits as evenly as possible: shares differ by at most one, earlier ranks have the longer ones.
SequenceShare share_of(uint64_t sequences, uint32_t ranks, uint32_t rank);

// Progress of a run. Part of every checkpoint.
struct Progress {
  uint64_t step = 0;     // steps done, skipped ones included: the data's cursor
  uint64_t applied = 0;  // optimizer updates, for AdamW's bias correction
  uint64_t skipped = 0;  // steps with a non-finite loss or gradient
  uint64_t skipped_in_a_row = 0;
  uint64_t tokens = 0;  // trained on
  // Assignments to every expert so far, [layers * experts]. Only of applied steps: a skipped step
  // has no update that could be lost.
  std::vector<int64_t> routed_tokens;
  std::vector<int64_t> routed_last;  // of the last step
  // AdamW steps of every expert, [layers * experts]: equal to `applied`, unless the expert was
  // restored from an older version than the rest or skipped updates (--idle-experts skip).
  // In a checkpoint they are with the experts, not with the rest.
  std::vector<int64_t> expert_updates;
  bool operator==(const Progress&) const = default;
};

struct StepResult {
  uint64_t step = 0;  // its number: 1 for the first
  float loss = 0;     // the same bits on every rank
  bool applied = true;
  double gradient_norm = 0;
  double learning_rate = 0;
  ExpertLoad load;      // the same on every rank
  StepTraffic traffic;  // of all ranks
};

// A step whose gradients are complete and that has changed nothing yet. Its gradients are in the
// model until its next begin_step().
struct PendingStep {
  uint64_t step = 0;
  double loss = 0;
  GradientSummary gradients;
  std::vector<int64_t> routed;  // of all ranks
  StepTraffic traffic;          // of all ranks
};

// One rank's training. Used from one thread.
class Trainer {
 public:
  // Both must outlive the Trainer; `text` is long enough for a sequence (Corpus::check_fits).
  Trainer(const TrainConfig& config, std::span<const uint8_t> text);

  using BeforeUpdate = std::function<Status(uint64_t step, std::span<const int64_t> routed)>;
  using BeforeWrite = std::function<void(const WeightState&)>;
  // Step progress.step + 1. A collective. `before_update` runs when the gradients are complete and
  // nothing has changed yet, with the step's routing counts over all ranks; its error fails the
  // step. After an error neither parameters nor `progress` have changed, on this rank; other
  // ranks may have completed the step. `before_write` runs for all state just before it is
  // updated (StepInput), and cannot fail the step.
  Result<StepResult> step(Comm& comm, Model& model, Progress& progress,
                          const BeforeUpdate& before_update = {},
                          const BeforeWrite& before_write = {});

  // The two halves of a step. compute() is the collective; its result is the same on every rank
  // that gets one. apply() is local and cannot fail, so ranks can first agree whether
  // all apply the step or none does.
  Result<PendingStep> compute(Comm& comm, Model& model, const Progress& progress);
  StepResult apply(Model& model, Progress& progress, PendingStep pending,
                   const BeforeWrite& before_write = {});

 private:
  static Status count(Comm& comm, const Model& model, PendingStep& pending);
  Result<double> forward_backward(Comm& comm, Model& model, uint64_t step);

  const TrainConfig& config_;
  std::span<const uint8_t> text_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> targets_;
};

// Mean cross-entropy per token of `sequences` sequences spread evenly over `text`, all on this
// rank's communicator, routed as in step `step` (BatchShare::step). A collective.
Result<double> evaluate_text(Comm& comm, Model& model, std::span<const uint8_t> text,
                             uint64_t sequences, uint64_t step = 0);

}  // namespace moetrain
