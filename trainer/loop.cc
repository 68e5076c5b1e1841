#include "trainer/loop.h"

#include <algorithm>
#include <cmath>

#include "formats/base/assert.h"
#include "trainer/data.h"

namespace moetrain {

SequenceShare share_of(uint64_t sequences, uint32_t ranks, uint32_t rank) {
  const uint64_t base = sequences / ranks;
  const uint64_t longer = sequences % ranks;
  return {rank * base + std::min<uint64_t>(rank, longer), base + (rank < longer ? 1 : 0)};
}

Trainer::Trainer(const TrainConfig& config, std::span<const uint8_t> text)
    : config_(config), text_(text) {
  CKPT_ASSERT(text.size() > config.model.seq_len);
}

// The step's loss. Gradients of all micro-batches are added up in the model.
Result<double> Trainer::forward_backward(Comm& comm, Model& model, uint64_t step) {
  const uint32_t seq_len = config_.model.seq_len;
  const SequenceShare share = share_of(config_.batch, comm.size(), comm.rank());
  tokens_.resize(share.count * seq_len);
  targets_.resize(share.count * seq_len);
  const LossScale scale{
      .cross_entropy = 1.0 / static_cast<double>(config_.tokens_per_step()),
      .auxiliary = config_.model.aux_coef / static_cast<double>(config_.micro_batches)};
  double loss = 0;
  for (uint64_t micro = 0; micro < config_.micro_batches; ++micro) {
    const uint64_t first = micro * config_.batch + share.first;
    fill_sequences(text_, config_.seed, step, first, share.count, seq_len, tokens_, targets_);
    CKPT_ASSIGN(const MicroBatchLoss part,
                model.forward_backward(comm, {tokens_, targets_, step}, scale));
    loss += scale.cross_entropy * part.cross_entropy_sum + scale.auxiliary * part.auxiliary;
  }
  return loss;
}

Result<StepResult> Trainer::step(Comm& comm, Model& model, Progress& progress,
                                 const BeforeUpdate& before_update,
                                 const BeforeWrite& before_write) {
  CKPT_ASSIGN(PendingStep pending, compute(comm, model, progress));
  if (before_update) CKPT_TRY(before_update(pending.step, pending.routed));
  // From here on nothing can fail: a rank is either before this step or after it.
  return apply(model, progress, std::move(pending), before_write);
}

Result<PendingStep> Trainer::compute(Comm& comm, Model& model, const Progress& progress) {
  PendingStep pending{.step = progress.step + 1};
  model.begin_step();
  CKPT_ASSIGN(pending.loss, forward_backward(comm, model, progress.step));
  CKPT_TRY(reduce_gradients(comm, model));
  CKPT_ASSIGN(pending.gradients, summarise_gradients(comm, model));
  CKPT_TRY(count(comm, model, pending));
  return pending;
}

// Adds up the counts of all ranks.
Status Trainer::count(Comm& comm, const Model& model, PendingStep& pending) {
  const size_t experts = model.routing_counts().size();
  const StepTraffic own = model.traffic();
  std::vector<int64_t>& sums = pending.routed;
  sums.reserve(experts + 3);
  sums.assign(model.routing_counts().begin(), model.routing_counts().end());
  for (const uint64_t bytes : {own.tokens, own.weights, own.gradients}) {
    sums.push_back(static_cast<int64_t>(bytes));
  }
  CKPT_TRY(comm.all_reduce_sum(std::span(sums)));
  pending.traffic = {.tokens = static_cast<uint64_t>(sums[experts]),
                     .weights = static_cast<uint64_t>(sums[experts + 1]),
                     .gradients = static_cast<uint64_t>(sums[experts + 2])};
  sums.resize(experts);
  return {};
}

StepResult Trainer::apply(Model& model, Progress& progress, PendingStep pending,
                          const BeforeWrite& before_write) {
  CKPT_ASSERT(pending.step == progress.step + 1);
  StepResult result{.step = pending.step};
  const GradientSummary& gradients = pending.gradients;
  std::vector<int64_t>& routed = pending.routed;
  result.loss = static_cast<float>(pending.loss);
  result.gradient_norm = gradients.norm;
  result.load = model.expert_load();
  result.traffic = pending.traffic;
  result.learning_rate = learning_rate(config_.schedule, progress.step);
  progress.expert_updates.resize(routed.size());
  progress.routed_tokens.resize(routed.size());
  result.applied = gradients.finite && std::isfinite(gradients.norm) && std::isfinite(result.loss);
  if (result.applied) {
    adamw_step(model, config_.adamw,
               {.learning_rate = result.learning_rate,
                .gradient_factor = clip_factor(gradients.norm, config_.adamw.clip_norm),
                .step = progress.applied,
                .routed_tokens = routed,
                .expert_steps = progress.expert_updates,
                .before_write = before_write});
    for (size_t i = 0; i < routed.size(); ++i) {
      const bool idle = config_.adamw.idle_experts == IdleExperts::kSkip && routed[i] == 0;
      if (!idle) ++progress.expert_updates[i];
      progress.routed_tokens[i] += routed[i];
    }
    ++progress.applied;
    progress.skipped_in_a_row = 0;
  } else {
    ++progress.skipped;
    ++progress.skipped_in_a_row;
  }
  ++progress.step;
  progress.tokens += config_.tokens_per_step();
  progress.routed_last = std::move(routed);
  return result;
}

Result<double> evaluate_text(Comm& comm, Model& model, std::span<const uint8_t> text,
                             uint64_t sequences, uint64_t step) {
  const uint32_t seq_len = model.config().seq_len;
  CKPT_ASSERT(text.size() > seq_len && sequences > 0);
  double sum = 0;
  int64_t targets = 0;
  std::vector<int32_t> row(seq_len);
  std::vector<int32_t> next(seq_len);
  const uint64_t last = text.size() - seq_len - 1;
  for (uint64_t base = 0; base < sequences; base += comm.size()) {
    // One sequence per rank and turn; in the last turn a rank without one still takes part.
    const uint64_t i = base + comm.rank();
    const bool mine = i < sequences;
    const uint64_t at = mine && sequences > 1 ? last * i / (sequences - 1) : 0;
    std::copy_n(text.begin() + at, seq_len, row.begin());
    std::copy_n(text.begin() + at + 1, seq_len, next.begin());
    const size_t count = mine ? seq_len : 0;
    CKPT_ASSIGN(
        const MicroBatchLoss part,
        model.evaluate(comm, {std::span(row).first(count), std::span(next).first(count), step}));
    sum += part.cross_entropy_sum;
    targets += part.targets;
  }
  return sum / static_cast<double>(targets);
}

}  // namespace moetrain
