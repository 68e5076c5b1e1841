#include "trainer/simulate/sharded/step_simulation.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace moetrain::simulate::sharded {

namespace {

// [rank]: experts of the layer that it computes, each once.
std::vector<uint32_t> distinct_experts(const LayerSlots& slots) {
  std::vector<uint32_t> distinct;
  distinct.reserve(slots.size());
  for (const std::vector<uint32_t>& rank : slots) {
    distinct.push_back(static_cast<uint32_t>(std::set(rank.begin(), rank.end()).size()));
  }
  return distinct;
}

// Sums of a run on the fully sharded stack.
class Steps {
 public:
  Steps(const ShardedModel& model, const Shape& shape, const ShardedSystem& system)
      : model_(model), shape_(shape), system_(system), routing_(model, shape) {}

  // One step by this plan. Returns the tokens of every layer.
  LayerLoads run(uint64_t number, const std::vector<LayerSlots>& plan, bool counts) {
    const auto ranks = static_cast<size_t>(model_.ranks());
    const auto together = static_cast<size_t>(model_.sequences_per_rank);
    const size_t per_batch = ranks * together;
    const auto batches = static_cast<size_t>(model_.sequences) / per_batch;
    LayerLoads loads(plan.size());
    for (uint32_t layer = 0; layer < plan.size(); ++layer) {
      const TokenCounts sequences = routing_.sequences(number, layer);
      loads[layer].assign(static_cast<size_t>(shape_.experts), 0);
      const TokenCounts all = add_rows(sequences, 0, 1, sequences.size());
      for (size_t e = 0; e < loads[layer].size(); ++e) {
        loads[layer][e] = static_cast<uint64_t>(std::llround(all[0][e]));
      }
      if (!counts) continue;
      set_exchange(plan[layer]);
      for (size_t batch = 0; batch < batches; ++batch) {
        add_layer(plan[layer], add_rows(sequences, batch * per_batch, ranks, together), layer);
      }
    }
    if (counts) end_step(batches);
    return loads;
  }

  ShardedOutcome mean() const {
    const auto steps = static_cast<double>(steps_);
    ShardedOutcome mean = sum_;
    for (double* part : {&mean.step.dense, &mean.step.experts, &mean.step.waiting,
                         &mean.step.all_to_all, &mean.step.exposed, &mean.step.other,
                         &mean.exchange_s, &mean.restore_bytes, &mean.reshard_bytes}) {
      *part /= steps;
    }
    mean.max_over_mean /= static_cast<double>(layers_);
    return mean;
  }

 private:
  void set_exchange(const LayerSlots& slots) {
    const std::vector<uint32_t> distinct = distinct_experts(slots);
    times_.restore = restore_seconds(model_, shape_, distinct);
    times_.reshard = reshard_seconds(model_, shape_, distinct);
    bytes_ = 0;
    for (const uint32_t experts : distinct) bytes_ += restore_bytes(model_, shape_, experts);
    bytes_ /= static_cast<double>(distinct.size());
  }

  void add_layer(const LayerSlots& slots, const TokenCounts& tokens, uint32_t layer) {
    const Dispatch sent =
        dispatch(slots, tokens, static_cast<uint32_t>(model_.ranks_per_node), system_.sharing);
    const double of_rank = model_.sequences_per_rank * model_.sequence_tokens;
    times_.dense = dense_seconds(model_, shape_, of_rank);
    times_.experts = expert_seconds(model_, shape_, sent.busiest());
    times_.all_to_all = all_to_all_seconds(model_, shape_, sent);
    const double mean = expert_seconds(model_, shape_, sent.mean());
    const double passes = 3 + model_.recompute;  // in forward passes
    sum_.step.dense += passes * times_.dense;
    sum_.step.experts += passes * mean;
    sum_.step.waiting += passes * (times_.experts - mean);
    sum_.step.all_to_all += 2 * (2 + model_.recompute) * times_.all_to_all;
    sum_.step.exposed += exposed(layer);
    sum_.max_over_mean += sent.busiest() / sent.mean();
    sum_.exchange_s += 2 * times_.restore + times_.reshard;
    sum_.restore_bytes += 2 * bytes_;
    sum_.reshard_bytes += bytes_ / model_.weight_bytes * model_.gradient_bytes;
    ++layers_;
  }

  // The first layer's restore has nothing before it, its re-shard nothing after it.
  double exposed(uint32_t layer) const {
    const Schedule& schedule = system_.schedule;
    if (layer > 0) {
      return exposed_forward(times_, schedule) +
             exposed_backward(times_, schedule, model_.recompute);
    }
    return times_.restore +
           exposed_backward(times_, {.prefetch = schedule.prefetch, .delayed_reshard = false},
                            model_.recompute);
  }

  void end_step(size_t batches) {
    const double tokens = model_.sequences_per_rank * model_.sequence_tokens;
    sum_.step.dense += 3 * static_cast<double>(batches) * head_seconds(model_, shape_, tokens);
    sum_.step.other += optimizer_seconds(model_, shape_) + model_.routing_us / 1e6;
    ++steps_;
  }

  const ShardedModel& model_;
  const Shape& shape_;
  const ShardedSystem& system_;
  Routing routing_;
  LayerTimes times_;  // of the present layer
  double bytes_ = 0;  // of one restore of it
  ShardedOutcome sum_;
  uint64_t steps_ = 0;
  uint64_t layers_ = 0;  // and micro-batches
};

}  // namespace

Result<ShardedOutcome> simulate_step(const ShardedModel& model, const Shape& shape,
                                     const ShardedSystem& system, const Sampling& sampling) {
  if (!system.fully_sharded) return simulate_megatron(model, shape, sampling);
  ShardedPlanner planner(model, shape, system);
  Steps steps(model, shape, system);
  for (uint64_t step = 0; step < sampling.warm_up + sampling.steps; ++step) {
    CKPT_ASSIGN(const std::vector<LayerSlots>* plan, planner.next());
    planner.record(steps.run(step, *plan, step >= sampling.warm_up));
  }
  return steps.mean();
}

}  // namespace moetrain::simulate::sharded
