#include "trainer/placement/laer.h"

#include <algorithm>
#include <cmath>

#include "trainer/placement/laer_counts.h"

namespace moetrain {

double laer_cost(const LayerSlots& slots, const std::vector<uint64_t>& loads,
                 const NodeGroups& nodes, const LaerCosts& costs) {
  std::vector<std::vector<uint32_t>> at(loads.size());  // [expert]: the rank of each slot
  for (uint32_t rank = 0; rank < nodes.ranks(); ++rank) {
    for (const uint32_t expert : slots[rank]) at[expert].push_back(rank);
  }
  std::vector<double> computed(nodes.ranks());
  double communication = 0;
  std::vector<uint32_t> copies(nodes.nodes());
  for (size_t expert = 0; expert < at.size(); ++expert) {
    std::ranges::fill(copies, 0);
    for (const uint32_t rank : at[expert]) ++copies[nodes.node(rank)];
    const double of_rank = static_cast<double>(loads[expert]) / nodes.ranks();
    uint32_t away = 0;  // ranks on nodes without a replica
    for (uint32_t node = 0; node < nodes.nodes(); ++node) {
      if (copies[node] == 0) away += nodes.size(node);
    }
    const double foreign = of_rank * away / static_cast<double>(at[expert].size());
    for (const uint32_t rank : at[expert]) {
      const uint32_t node = nodes.node(rank);
      const double own = of_rank * nodes.size(node) / copies[node];
      computed[rank] += own + foreign;
      // The tokens of one of the node's ranks are already local.
      communication += own * (nodes.size(node) - 1) / nodes.size(node) * costs.within_node;
      communication += foreign * costs.between_nodes;
    }
  }
  return 4 * communication + (3 + costs.recompute) * std::ranges::max(computed);
}

LaerPlanner::LaerPlanner(const NodeGroups& nodes, uint32_t slots_per_rank, uint32_t experts,
                         LaerScheme scheme, const LaerCosts& costs, LaerCandidates candidates)
    : nodes_(nodes),
      slots_(nodes.ranks() * slots_per_rank),
      scheme_(scheme),
      costs_(costs),
      candidates_(candidates),
      placers_{LaerPlacer(nodes, slots_per_rank, experts),
               LaerPlacer(nodes, slots_per_rank, experts)} {}

LayerSlots LaerPlanner::plan(const std::vector<uint64_t>& loads) {
  const auto experts = static_cast<uint32_t>(loads.size());
  best_cost_ = HUGE_VAL;
  if (candidates_ != LaerCandidates::kEven) consider_by_load(loads);
  if (candidates_ != LaerCandidates::kByLoad) consider(loads, even_counts(slots_, experts));
  return placers_[1 - tried_].slots();
}

void LaerPlanner::consider_by_load(const std::vector<uint64_t>& loads) {
  const auto experts = static_cast<uint32_t>(loads.size());
  const uint32_t nodes = nodes_.nodes();
  const bool on_each_node = uint64_t{experts} * nodes <= slots_;
  if (scheme_ == LaerScheme::kPublished) {
    consider(loads, counts_by_rounds(loads, slots_, nodes, on_each_node ? nodes : 1, slots_));
    return;
  }
  // More than one for each rank only where there are more slots on a rank than experts.
  const uint32_t replicas_max = std::max(nodes_.ranks(), (slots_ + experts - 1) / experts);
  consider(loads, counts_by_load(loads, slots_, replicas_max));
  if (nodes == 1) return;
  consider(loads, counts_by_rounds(loads, slots_, nodes, 1, replicas_max));
  if (on_each_node) {
    consider(loads, counts_by_rounds(loads, slots_, nodes, nodes, replicas_max));
  }
}

// Keeps the cheapest candidate; of equal ones the first.
void LaerPlanner::consider(const std::vector<uint64_t>& loads,
                           const std::vector<uint32_t>& counts) {
  const bool published = scheme_ == LaerScheme::kPublished;
  placers_[tried_].place(loads, counts,
                         published ? LaerPlacer::Rule::kPublished : LaerPlacer::Rule::kLite);
  const double asked = cost(loads);
  if (asked >= best_cost_) return;
  best_cost_ = asked;
  tried_ = 1 - tried_;
}

double LaerPlanner::cost(const std::vector<uint64_t>& loads) const {
  const LaerPlacer& placed = placers_[tried_];
  if (scheme_ == LaerScheme::kPublished) return laer_cost(placed.slots(), loads, nodes_, costs_);
  const LaerPlacer::Expected expected = placed.expected(costs_);
  return 4 * expected.received_max + (3 + costs_.recompute) * expected.computed_max;
}

std::vector<LayerSlots> plan_laer(const PlacementRequest& request, LaerScheme scheme,
                                  const LaerCosts& costs, LaerCandidates candidates) {
  const NodeGroups nodes = NodeGroups::even(request.ranks, request.nodes);
  LaerPlanner planner(nodes, request.slots_per_rank, request.experts(), scheme, costs, candidates);
  std::vector<LayerSlots> layers;
  layers.reserve(request.layers());
  for (const std::vector<uint64_t>& loads : request.loads) layers.push_back(planner.plan(loads));
  return layers;
}

}  // namespace moetrain
