#include "trainer/simulate/plan.h"

#include <algorithm>

namespace moetrain::simulate {

namespace {

// Plans kept at a time, and the slots in them: about 26 bytes each.
constexpr size_t kPlansMax = 256;
constexpr uint64_t kSlotsKeptMax = uint64_t{1} << 24;

void index_holders(Plan& plan, const ExpertGrid& grid, uint32_t ranks_per_node) {
  plan.holders.assign(grid.size(), {});
  plan.held.assign(plan.nodes, {});
  for (uint32_t layer = 0; layer < grid.layers; ++layer) {
    for (uint32_t rank = 0; rank < plan.ranks; ++rank) {
      const uint32_t node = rank / ranks_per_node;
      for (const uint32_t expert : plan.layers[layer][rank]) {
        std::vector<uint32_t>& holders = plan.holders[grid.at(layer, expert)];
        if (holders.empty() || holders.back() != node) holders.push_back(node);
      }
    }
  }
  for (size_t expert = 0; expert < grid.size(); ++expert) {
    for (const uint32_t node : plan.holders[expert]) {
      plan.held[node].push_back(static_cast<uint32_t>(expert));
    }
  }
}

}  // namespace

std::vector<double> imbalance(const Plan& plan, const std::vector<std::vector<uint64_t>>& loads) {
  std::vector<double> result;
  result.reserve(plan.layers.size());
  std::vector<double> share;
  for (size_t layer = 0; layer < plan.layers.size(); ++layer) {
    const LayerSlots& slots = plan.layers[layer];
    share.assign(loads[layer].size(), 0);
    for (const auto& rank : slots) {
      for (const uint32_t expert : rank) ++share[expert];
    }
    double total = 0;
    for (size_t expert = 0; expert < share.size(); ++expert) {
      const auto load = static_cast<double>(loads[layer][expert]);
      total += load;
      share[expert] = load / std::max(share[expert], 1.0);
    }
    double most = 0;
    for (const auto& rank : slots) {
      double load = 0;
      for (const uint32_t expert : rank) load += share[expert];
      most = std::max(most, load);
    }
    result.push_back(total > 0 ? most * static_cast<double>(slots.size()) / total : 1);
  }
  return result;
}

Result<std::shared_ptr<const Plan>> Planner::expert_parallel() {
  const uint32_t nodes = ep_ranks(model_) / static_cast<uint32_t>(model_.ranks_per_node);
  return make(PolicyName::kStatic, nodes, static_cast<uint32_t>(model_.static_slots), 0);
}

Result<std::shared_ptr<const Plan>> Planner::elastic(PolicyName policy, uint32_t nodes,
                                                     uint32_t epoch) {
  return make(policy, nodes, static_cast<uint32_t>(model_.slots_per_rank), epoch);
}

Result<std::shared_ptr<const Plan>> Planner::make(PolicyName policy, uint32_t nodes, uint32_t slots,
                                                  uint32_t epoch) {
  const auto key = std::make_tuple(policy, nodes, slots, epoch);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  const auto per_node = static_cast<uint32_t>(model_.ranks_per_node);
  PlacementRequest request;
  const uint32_t distinct = load_.distinct_layers();
  request.loads.assign(load_.loads(epoch).begin(), load_.loads(epoch).begin() + distinct);
  request.ranks = nodes * per_node;
  request.slots_per_rank = slots;
  request.replicas_min =
      policy == PolicyName::kStatic ? 1 : static_cast<uint32_t>(model_.replicas_min);
  if (per_node > 1) {
    request.domain_of_rank.resize(request.ranks);
    for (uint32_t rank = 0; rank < request.ranks; ++rank) {
      request.domain_of_rank[rank] = rank / per_node;
    }
  }
  request.replicas_min = std::max(replicas_possible(request), 1U);
  auto plan = std::make_shared<Plan>();
  plan->nodes = nodes;
  plan->ranks = request.ranks;
  plan->slots = slots;
  plan->epoch = epoch;
  CKPT_ASSIGN(plan->layers, plan_placement(policy, request));
  for (uint32_t layer = distinct; layer < load_.grid().layers; ++layer) {
    plan->layers.push_back(plan->layers[layer % distinct]);
  }
  index_holders(*plan, load_.grid(), per_node);
  const uint64_t in_plan = uint64_t{plan->ranks} * slots * load_.grid().layers;
  if (known_.size() >= kPlansMax || slots_kept_ + in_plan > kSlotsKeptMax) {
    known_.clear();
    slots_kept_ = 0;
  }
  slots_kept_ += in_plan;
  known_.emplace(key, plan);
  return std::shared_ptr<const Plan>(std::move(plan));
}

}  // namespace moetrain::simulate
