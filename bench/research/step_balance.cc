#include "bench/research/step_balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "formats/base/assert.h"
#include "trainer/parallel/step_planner.h"
#include "trainer/placement/token_shares.h"
#include "trainer/simulate/random.h"

namespace bench {

using ckpt::Result;
using moetrain::LayerLoads;
using moetrain::LayerSlots;
using moetrain::simulate::Random;

namespace {

constexpr double kWeightOfOne = 1e9;  // of the most popular expert of zipf_weights()

// Draws experts in proportion to their weights: Walker's alias method, one number for each draw.
class Categorical {
 public:
  explicit Categorical(const std::vector<uint64_t>& weights)
      : keep_(weights.size(), 1), alias_(weights.size()) {
    const auto sum =
        static_cast<double>(std::accumulate(weights.begin(), weights.end(), uint64_t{0}));
    CKPT_ASSERT(sum > 0);
    std::vector<uint32_t> small, large;
    for (uint32_t i = 0; i < weights.size(); ++i) {
      keep_[i] = static_cast<double>(weights[i]) / sum * static_cast<double>(weights.size());
      alias_[i] = i;
      (keep_[i] < 1 ? small : large).push_back(i);
    }
    while (!small.empty() && !large.empty()) {
      const uint32_t less = small.back();
      const uint32_t more = large.back();
      small.pop_back();
      alias_[less] = more;
      keep_[more] -= 1 - keep_[less];
      if (keep_[more] >= 1) continue;
      large.pop_back();
      small.push_back(more);
    }
    // Roundings alone have left these below one.
    for (const uint32_t i : small) keep_[i] = 1;
  }

  uint32_t draw(Random& random) const {
    const double at = random.unit() * static_cast<double>(keep_.size());
    const auto column = static_cast<uint32_t>(at);
    return at - column < keep_[column] ? column : alias_[column];
  }

 private:
  std::vector<double> keep_;
  std::vector<uint32_t> alias_;
};

// [rank][expert]: what the tokens of every rank choose.
std::vector<int64_t> draw_tokens(const std::vector<uint64_t>& weights,
                                 const StepBalanceOptions& options, Random& random) {
  const Categorical experts(weights);
  std::vector<int64_t> tokens(size_t{options.plan.ranks} * weights.size());
  std::vector<uint32_t> chosen;
  for (uint32_t rank = 0; rank < options.plan.ranks; ++rank) {
    for (uint64_t token = 0; token < options.tokens_per_rank; ++token) {
      chosen.clear();
      while (chosen.size() < options.top_k) {
        const uint32_t expert = experts.draw(random);
        if (std::ranges::find(chosen, expert) != chosen.end()) continue;
        chosen.push_back(expert);
        ++tokens[rank * weights.size() + expert];
      }
    }
  }
  return tokens;
}

class StepRouter {
 public:
  explicit StepRouter(const StepBalanceOptions& options) : options_(options) {
    nodes_ = options.plan.node_of_rank;
    if (nodes_.empty()) nodes_.assign(options.plan.ranks, 0);
  }

  // Routes the tokens of one layer, [rank][expert], and counts.
  void route(const LayerSlots& slots, const std::vector<int64_t>& tokens) {
    std::vector<int64_t> loads(nodes_.size());
    for (uint32_t expert = 0; expert < options_.plan.experts; ++expert) {
      route_expert(slots, tokens, expert, loads);
    }
    const auto sum = static_cast<double>(std::accumulate(loads.begin(), loads.end(), int64_t{0}));
    const auto most = static_cast<double>(std::ranges::max(loads));
    ratios_.push_back(most / (sum / static_cast<double>(loads.size())));
    tokens_ += sum;
    for (const auto& held : slots) {
      restored_ += static_cast<double>(std::set<uint32_t>(held.begin(), held.end()).size());
    }
  }

  StepBalance figures() {
    StepBalance figures;
    const auto count = static_cast<double>(ratios_.size());
    figures.steps = ratios_.size() / options_.plan.layers;
    if (ratios_.empty()) return figures;
    figures.max_over_mean = std::accumulate(ratios_.begin(), ratios_.end(), 0.0) / count;
    figures.between_nodes = crossed_ / tokens_;
    figures.restored = restored_ / count / options_.plan.ranks;
    std::ranges::sort(ratios_);
    figures.max_over_mean_p99 = ratios_[(ratios_.size() - 1) * 99 / 100];
    return figures;
  }

 private:
  void route_expert(const LayerSlots& slots, const std::vector<int64_t>& tokens, uint32_t expert,
                    std::vector<int64_t>& loads) {
    std::vector<uint32_t> slot_ranks;
    std::vector<int64_t> sources;
    for (uint32_t rank = 0; rank < slots.size(); ++rank) {
      slot_ranks.insert(slot_ranks.end(),
                        static_cast<size_t>(std::ranges::count(slots[rank], expert)), rank);
      sources.push_back(tokens[size_t{rank} * options_.plan.experts + expert]);
    }
    const auto shares = moetrain::share_tokens_by_node(sources, slot_ranks, nodes_, expert);
    for (uint32_t source = 0; source < sources.size(); ++source) {
      for (size_t slot = 0; slot < slot_ranks.size(); ++slot) {
        const int64_t sent = shares[source * slot_ranks.size() + slot];
        loads[slot_ranks[slot]] += sent;
        if (nodes_[source] != nodes_[slot_ranks[slot]]) crossed_ += static_cast<double>(sent);
      }
    }
  }

  const StepBalanceOptions& options_;
  std::vector<uint32_t> nodes_;
  std::vector<double> ratios_;  // of layers and steps
  double tokens_ = 0;
  double crossed_ = 0;
  double restored_ = 0;
};

}  // namespace

Result<StepBalance> step_balance(const std::vector<LayerLoads>& samples,
                                 const StepBalanceOptions& options) {
  const moetrain::StepPlanOptions& plan = options.plan;
  CKPT_ASSIGN(const auto planner,
              moetrain::StepPlanner::make(
                  {.plan = plan, .replan_every = options.replan_every, .threaded = false},
                  moetrain::LoadWindow(plan.layers, plan.experts)));
  StepRouter router(options);
  Random random(options.seed);
  uint64_t step = 0;
  for (const LayerLoads& weights : samples) {
    for (uint64_t i = 0; i < options.steps_per_sample; ++i) {
      CKPT_ASSIGN(const auto* placement, planner->take(++step));
      std::vector<int64_t> routed;  // [layer, expert]: of all ranks
      for (uint32_t layer = 0; layer < plan.layers; ++layer) {
        const std::vector<int64_t> tokens = draw_tokens(weights[layer], options, random);
        if (step > options.steps_before) router.route(placement->slots[layer], tokens);
        routed.resize(routed.size() + plan.experts);
        for (size_t at = 0; at < tokens.size(); ++at) {
          routed[size_t{layer} * plan.experts + at % plan.experts] += tokens[at];
        }
      }
      planner->record(routed);
    }
  }
  return router.figures();
}

LayerLoads zipf_weights(uint32_t layers, uint32_t experts, double exponent, uint64_t seed) {
  Random random(seed);
  LayerLoads all;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    std::vector<uint64_t>& weights = all.emplace_back();
    for (uint32_t e = 0; e < experts; ++e) {
      weights.push_back(static_cast<uint64_t>(kWeightOfOne / std::pow(e + 1, exponent)));
    }
    for (uint32_t e = experts - 1; e > 0; --e) std::swap(weights[e], weights[random.below(e + 1)]);
  }
  return all;
}

}  // namespace bench
