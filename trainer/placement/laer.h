// laer: the planner of LAER-MoE (arXiv 2602.11686), with candidates of our own.
//
// Candidates differ in how many replicas each expert gets; a greedy placement (laer_placer.h) puts
// each into slots; the one that costs least is kept.
//
//   published  as even as the slots allow; and by load: one replica on each node if the slots
//              suffice, otherwise one, and the next always to the expert with most load per
//              replica, for all nodes at once as soon as it has one on each. The cost is
//              4 * sum over ranks of T_comm + (3 + recompute) * max over ranks of T_comp.
//   lite       the same two, and two that begin with one replica: one at a time, and for all nodes
//              at once from one on each node on. Where one replica on each node takes all slots
//              there is nothing left to balance with, and these are what reaches a balance. No
//              expert gets more replicas than ranks. Placed and judged by what lite routing sends,
//              and with the busiest rank's T_comm in place of the sum: an all-to-all ends with it.
//
// T_comp is tokens computed, T_comm tokens received from other ranks, weighed by what a token
// costs.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "trainer/placement/laer_placer.h"
#include "trainer/placement/policy.h"

namespace moetrain {

enum class LaerScheme { kPublished, kLite };
// The candidates of a scheme that are considered. Less than all is an ablation.
enum class LaerCandidates { kAll, kEven, kByLoad };

// Plans layer after layer, one at a time, with the same memory.
class LaerPlanner {
 public:
  // `nodes` outlives this. slots_per_rank * ranks >= experts.
  LaerPlanner(const NodeGroups& nodes, uint32_t slots_per_rank, uint32_t experts,
              LaerScheme scheme = LaerScheme::kLite, const LaerCosts& costs = {},
              LaerCandidates candidates = LaerCandidates::kAll);

  // loads: tokens of each expert, from all ranks evenly; some are not zero. Fills all slots.
  LayerSlots plan(const std::vector<uint64_t>& loads);

 private:
  void consider_by_load(const std::vector<uint64_t>& loads);
  void consider(const std::vector<uint64_t>& loads, const std::vector<uint32_t>& counts);
  double cost(const std::vector<uint64_t>& loads) const;

  const NodeGroups& nodes_;
  const uint32_t slots_;
  const LaerScheme scheme_;
  const LaerCosts costs_;
  const LaerCandidates candidates_;
  std::array<LaerPlacer, 2> placers_;  // the cheapest so far, and the one that is tried
  size_t tried_ = 0;
  double best_cost_ = 0;
};

// The request is valid; replicas_min and domains do not matter; nodes do.
std::vector<LayerSlots> plan_laer(const PlacementRequest& request,
                                  LaerScheme scheme = LaerScheme::kLite,
                                  const LaerCosts& costs = {},
                                  LaerCandidates candidates = LaerCandidates::kAll);

// The published cost of a layer, in tokens computed. Every expert has a slot. A node's replicas
// share its tokens evenly, on whichever of its ranks these are.
double laer_cost(const LayerSlots& slots, const std::vector<uint64_t>& loads,
                 const NodeGroups& nodes, const LaerCosts& costs);

}  // namespace moetrain
