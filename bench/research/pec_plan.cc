#include "bench/research/pec_plan.h"

#include <algorithm>

namespace bench {

using moetrain::Share;

PecPlanner::PecPlanner(std::vector<PecUnit> units, uint32_t layers, uint32_t experts,
                       uint32_t ranks)
    : units_(std::move(units)),
      experts_(experts),
      ranks_(ranks),
      saved_(layers, std::vector<uint64_t>(experts)) {}

// Result: [layer][expert]
std::vector<std::vector<bool>> PecPlanner::select(uint32_t k) {
  ++snapshot_;
  moetrain::LayerSlots slots(ranks_);
  for (uint32_t expert = 0; expert < experts_; ++expert) slots[rank_of(expert)].push_back(expert);
  const moetrain::SelectionOptions options{
      .selector = moetrain::Selector::kSequential,
      .k = k,
      .staleness_max = moetrain::default_staleness_max(experts_, k)};
  std::vector<std::vector<bool>> chosen;
  for (uint32_t layer = 0; layer < saved_.size(); ++layer) {
    const std::vector<uint32_t> turns = moetrain::turns(slots, experts_, layer, k);
    std::vector<moetrain::ExpertCandidate> candidates(experts_);
    for (uint32_t expert = 0; expert < experts_; ++expert) {
      candidates[expert].age = snapshot_ - saved_[layer][expert];
      candidates[expert].turn = turns[expert];
    }
    std::vector<bool>& taken = chosen.emplace_back(experts_);
    for (const uint32_t expert : moetrain::select_experts(options, candidates)) {
      taken[expert] = true;
      saved_[layer][expert] = snapshot_;
    }
  }
  return chosen;
}

PecPlan PecPlanner::next(uint32_t k, moetrain::DenseSharding dense) {
  const auto chosen = select(k);
  PecPlan plan;
  std::vector<moetrain::ShareUnit> shared;
  for (uint32_t id = 0; id < units_.size(); ++id) {
    const PecUnit& unit = units_[id];
    if (unit.expert && !chosen[*unit.layer][*unit.expert]) continue;
    plan.units.push_back(id);
    plan.bytes += unit.bytes;
    shared.push_back({.bytes = unit.bytes, .holders = {}});
    if (unit.expert) shared.back().holders = {rank_of(*unit.expert)};
  }
  plan.shares = moetrain::share_units(shared, ranks_, dense);
  for (Share& share : plan.shares) share.unit = plan.units[share.unit];
  return plan;
}

PecDenominators pec_denominators(const std::vector<PecUnit>& units, uint32_t experts,
                                 uint32_t ranks) {
  uint64_t dense_weights = 0;
  uint64_t dense_optimizer = 0;
  uint64_t expert_bytes = 0;
  for (const PecUnit& unit : units) {
    uint64_t& sum = unit.expert ? expert_bytes : unit.optimizer ? dense_optimizer : dense_weights;
    sum += unit.bytes;
  }
  // Experts of the busiest rank: rounded up where the ranks do not divide them evenly.
  const uint64_t own_experts = expert_bytes / experts * ((experts + ranks - 1) / ranks);
  return {.even = (dense_weights + dense_optimizer + expert_bytes) / ranks,
          .zero2 = dense_weights + dense_optimizer / ranks + own_experts,
          .dense_rank0 = dense_weights + dense_optimizer + own_experts};
}

ckpt::Result<std::vector<PecPlan>> split_plan(const PecPlan& plan, uint32_t ranks,
                                              uint64_t rank_bytes_max, uint64_t fragment_overhead,
                                              const std::vector<PecUnit>& units) {
  const auto name_of = [&](uint32_t unit) {
    return unit < units.size() ? units[unit].name : fmt::format("number {}", unit);
  };
  std::vector<PecPlan> parts(1);
  std::vector<uint64_t> held(ranks);
  auto share = plan.shares.begin();
  for (const uint32_t unit : plan.units) {
    std::vector<uint64_t> adds(ranks);
    const auto first = share;
    for (; share != plan.shares.end() && share->unit == unit; ++share) {
      adds[share->rank] += share->length + fragment_overhead;
    }
    const uint64_t most = *std::max_element(adds.begin(), adds.end());
    if (most > rank_bytes_max) {
      return ckpt::make_error(ckpt::ErrorCode::kResourceExhausted,
                              "unit {}: one rank has {} bytes of it, its arena takes {}",
                              name_of(unit), most, rank_bytes_max);
    }
    const bool fits = std::equal(held.begin(), held.end(), adds.begin(),
                                 [&](uint64_t a, uint64_t b) { return a + b <= rank_bytes_max; });
    if (!fits) {
      parts.emplace_back();
      held.assign(ranks, 0);
    }
    PecPlan& part = parts.back();
    part.units.push_back(unit);
    part.shares.insert(part.shares.end(), first, share);
    for (auto one = first; one != share; ++one) part.bytes += one->length;
    for (uint32_t rank = 0; rank < ranks; ++rank) held[rank] += adds[rank];
  }
  return parts;
}

}  // namespace bench
