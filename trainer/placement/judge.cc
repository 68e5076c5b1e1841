#include "trainer/placement/judge.h"

#include <algorithm>
#include <numeric>

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

std::vector<uint32_t> replica_counts(const LayerSlots& slots, uint32_t experts) {
  std::vector<uint32_t> replicas(experts);
  for (const auto& rank : slots) {
    for (const uint32_t expert : rank) ++replicas[expert];
  }
  return replicas;
}

uint64_t replicas_to_move(const LayerSlots& wanted, const LayerSlots& current) {
  uint64_t count = 0;
  for (size_t rank = 0; rank < wanted.size(); ++rank) {
    std::vector<uint32_t> missing = wanted[rank];
    std::ranges::sort(missing);
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    for (const uint32_t expert : current[rank]) std::erase(missing, expert);
    count += missing.size();
  }
  return count;
}

Status check(const std::vector<LayerSlots>& placement, const PlacementRequest& request) {
  CKPT_TRY(validate(request));
  if (placement.size() != request.loads.size()) {
    return make_error(ErrorCode::kInvalidArgument, "placement: {} layers, the loads have {}",
                      placement.size(), request.loads.size());
  }
  for (size_t layer = 0; layer < placement.size(); ++layer) {
    if (placement[layer].size() != request.ranks) {
      return make_error(ErrorCode::kInvalidArgument, "placement: layer {} has {} ranks, not {}",
                        layer, placement[layer].size(), request.ranks);
    }
    CKPT_TRY(check_covers(placement[layer], request.experts()));
  }
  return {};
}

}  // namespace

std::vector<double> rank_loads(const LayerSlots& slots, const std::vector<uint64_t>& loads) {
  const std::vector<uint32_t> replicas = replica_counts(slots, static_cast<uint32_t>(loads.size()));
  const bool even = has_no_load(loads);
  std::vector<double> of_rank(slots.size());
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    for (const uint32_t expert : slots[rank]) {
      of_rank[rank] += (even ? 1.0 : static_cast<double>(loads[expert])) / replicas[expert];
    }
  }
  return of_rank;
}

std::vector<std::vector<uint32_t>> holder_sets(const std::vector<LayerSlots>& placement,
                                               const PlacementRequest& request) {
  std::vector<std::vector<uint32_t>> sets;
  sets.reserve(placement.size() * request.experts());
  for (const LayerSlots& layer : placement) {
    for (std::vector<uint32_t>& set : holders(layer, request.experts())) {
      if (!request.domain_of_rank.empty()) {
        for (uint32_t& rank : set) rank = request.domain(rank);
        std::ranges::sort(set);
        set.erase(std::unique(set.begin(), set.end()), set.end());
      }
      sets.push_back(std::move(set));
    }
  }
  return sets;
}

Result<Judgement> judge_balance(const std::vector<LayerSlots>& placement,
                                const PlacementRequest& request) {
  CKPT_TRY(check(placement, request));
  Judgement judgement{.max_over_mean = 0, .max_over_mean_worst = 0};
  const std::vector<std::vector<uint32_t>> sets = holder_sets(placement, request);
  for (uint32_t layer = 0; layer < placement.size(); ++layer) {
    LayerJudgement& one = judgement.layers.emplace_back();
    one.replicas = replica_counts(placement[layer], request.experts());
    one.rank_loads = rank_loads(placement[layer], request.loads[layer]);
    const double total = std::accumulate(one.rank_loads.begin(), one.rank_loads.end(), 0.0);
    one.max_over_mean = std::ranges::max(one.rank_loads) / (total / request.ranks);
    one.domains_min = request.domains();
    for (uint32_t expert = 0; expert < request.experts(); ++expert) {
      const auto& set = sets[size_t{layer} * request.experts() + expert];
      one.domains_min = std::min(one.domains_min, static_cast<uint32_t>(set.size()));
    }
    if (!request.current.empty()) {
      one.replicas_to_move = replicas_to_move(placement[layer], request.current[layer]);
    }
    judgement.replicas_to_move += one.replicas_to_move;
    judgement.max_over_mean += one.max_over_mean / static_cast<double>(placement.size());
    if (one.max_over_mean > judgement.max_over_mean_worst) {
      judgement.max_over_mean_worst = one.max_over_mean;
      judgement.worst_layer = layer;
    }
  }
  return judgement;
}

Result<Judgement> judge(const std::vector<LayerSlots>& placement, const PlacementRequest& request) {
  CKPT_ASSIGN(Judgement judgement, judge_balance(placement, request));
  judgement.recovery = joint_recovery(holder_sets(placement, request), request.domains());
  return judgement;
}

}  // namespace moetrain
