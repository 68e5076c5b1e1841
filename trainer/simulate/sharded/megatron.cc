// Megatron's step: expert parallel groups within a node, attention cut over tensor parallel ranks,
// weights whole, gradients reduced once a step.
#include <algorithm>

#include "trainer/simulate/sharded/step_simulation.h"

namespace moetrain::simulate::sharded {

namespace {

class Megatron {
 public:
  Megatron(const ShardedModel& model, const Shape& shape)
      : model_(model),
        shape_(shape),
        routing_(model, shape),
        expert_ranks_(megatron_expert_ranks(model, shape)),
        groups_(model.ranks() / expert_ranks_),
        passes_(3 + model.megatron_recompute),
        waiting_(groups_) {
    // One block of experts on each rank of a group.
    const auto experts = static_cast<uint32_t>(shape.experts);
    slots_.resize(expert_ranks_);
    for (uint32_t e = 0; e < experts; ++e) slots_[e * expert_ranks_ / experts].push_back(e);
  }

  void run(uint64_t number) {
    std::ranges::fill(waiting_, 0.0);
    for (uint32_t layer = 0; layer < static_cast<uint32_t>(shape_.layers); ++layer) {
      add_layer(routing_.sequences(number, layer));
    }
    sum_.step.waiting += std::ranges::max(waiting_);
    sum_.step.dense += 3 * micro_batches() * head_seconds(model_, shape_, rank_tokens());
    sum_.step.exposed += synchronisation();
    sum_.step.other += optimizer_seconds(model_, shape_);
    ++steps_;
  }

  ShardedOutcome mean() const {
    ShardedOutcome mean = sum_;
    for (double* part :
         {&mean.step.dense, &mean.step.experts, &mean.step.waiting, &mean.step.all_to_all,
          &mean.step.exposed, &mean.step.other, &mean.exchange_s, &mean.reshard_bytes}) {
      *part /= static_cast<double>(steps_);
    }
    mean.max_over_mean /= static_cast<double>(layers_);
    return mean;
  }

 private:
  double tensor_groups() const { return model_.ranks() / shape_.tensor_parallel; }
  double micro_batches() const {
    return model_.sequences / (tensor_groups() * model_.megatron_sequences_per_group);
  }
  // Tokens of a micro-batch: sequences are cut over their tensor parallel group.
  double rank_tokens() const {
    return model_.megatron_sequences_per_group * model_.sequence_tokens / shape_.tensor_parallel;
  }

  // The exchanges of sequence parallel attention: gather and scatter forward; gather again, scatter
  // and gather backward.
  double tensor_exchange() const {
    const double ranks = shape_.tensor_parallel;
    if (ranks == 1) return 0;
    const double bytes = (ranks - 1) * rank_tokens() * shape_.hidden * model_.token_bytes;
    const double one = model_.latency_us / 1e6 + bytes / model_.within_bytes_per_s;
    return (5 + 2 * model_.megatron_recompute) * one;
  }

  void add_layer(const TokenCounts& sequences) {
    const auto batches = static_cast<size_t>(micro_batches());
    const double dense = dense_seconds(model_, shape_, rank_tokens());
    for (size_t batch = 0; batch < batches; ++batch) {
      double all_to_all = 0;
      double experts = 0;
      for (uint32_t group = 0; group < groups_; ++group) {
        TokenCounts tokens(expert_ranks_);
        for (uint32_t rank = 0; rank < expert_ranks_; ++rank) {
          tokens[rank] = rank_share(sequences, batch, group * expert_ranks_ + rank);
        }
        const Dispatch sent = dispatch(slots_, tokens, expert_ranks_);
        const double mean = expert_seconds(model_, shape_, sent.mean());
        waiting_[group] += passes_ * (expert_seconds(model_, shape_, sent.busiest()) - mean);
        experts += mean;
        all_to_all += all_to_all_seconds(model_, shape_, sent);
        sum_.max_over_mean += sent.busiest() / sent.mean();
        ++layers_;
      }
      sum_.step.dense += passes_ * dense;
      sum_.step.experts += passes_ * experts / groups_;
      sum_.step.all_to_all += 2 * (2 + model_.megatron_recompute) * all_to_all / groups_;
      sum_.step.exposed += tensor_exchange();
    }
  }

  // Tokens of a rank in a micro-batch: its part of the sequences of its tensor parallel group.
  std::vector<double> rank_share(const TokenCounts& sequences, size_t batch, uint32_t rank) const {
    const auto together = static_cast<size_t>(model_.megatron_sequences_per_group);
    const auto ranks = static_cast<uint32_t>(shape_.tensor_parallel);
    const size_t per_batch = static_cast<size_t>(tensor_groups()) * together;
    const size_t first = batch * per_batch + rank / ranks * together;
    std::vector<double> tokens = add_rows(sequences, first, 1, together)[0];
    for (double& value : tokens) value /= ranks;
    return tokens;
  }

  // Gradients to their owners and weights back, once a step; the backward pass of the last
  // micro-batch and the forward pass of the first hide what they can.
  double synchronisation() {
    const double of_rank =
        shape_.layers * shape_.experts / expert_ranks_ * shape_.expert_parameters();
    const double dense =
        (shape_.layers * dense_parameters(model_, shape_) + 2 * shape_.hidden * model_.vocabulary) /
        shape_.tensor_parallel;
    const auto others = [](double of) { return of > 1 ? (of - 1) / of : 0.0; };
    const double parameters = of_rank * others(groups_) + dense * others(tensor_groups());
    const double per_rank = model_.between_bytes_per_s / model_.ranks_per_node;
    // A single node exchanges nothing with others.
    const double rate = model_.nodes > 1 ? per_rank : model_.within_bytes_per_s;
    const double reduce = parameters * model_.megatron_gradient_bytes / rate;
    const double gather = parameters * model_.weight_bytes / rate;
    const double batch = (step_compute() / micro_batches()) / passes_;  // a forward pass
    sum_.exchange_s += reduce + gather;
    sum_.reshard_bytes += parameters * model_.megatron_gradient_bytes;
    return std::max(reduce - 2 * batch, 0.0) + std::max(gather - batch, 0.0);
  }

  double step_compute() const {
    const double tokens = rank_tokens() * shape_.top_k;
    return passes_ * micro_batches() * shape_.layers *
           (dense_seconds(model_, shape_, rank_tokens()) + expert_seconds(model_, shape_, tokens));
  }

  const ShardedModel& model_;
  const Shape& shape_;
  Routing routing_;
  uint32_t expert_ranks_;
  uint32_t groups_;
  double passes_;
  LayerSlots slots_;             // of the ranks of a group
  std::vector<double> waiting_;  // [group]: in the present step
  ShardedOutcome sum_;
  uint64_t steps_ = 0;
  uint64_t layers_ = 0;  // of groups and micro-batches
};

}  // namespace

Result<ShardedOutcome> simulate_megatron(const ShardedModel& model, const Shape& shape,
                                         const Sampling& sampling) {
  Megatron megatron(model, shape);
  for (uint64_t step = 0; step < sampling.steps; ++step) megatron.run(sampling.warm_up + step);
  return megatron.mean();
}

}  // namespace moetrain::simulate::sharded
