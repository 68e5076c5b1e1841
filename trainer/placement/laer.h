// laer: the planner of LAER-MoE, as it is described.
//
// Two replica schemes: as even as N c / E allows; and by load, beginning with one replica of each
// expert, the next one always to who has most load per replica. Replicas, the largest share first,
// go to the node with fewest copies of the expert, there to the lightest rank with a free slot.
// Each candidate is routed lightly - replicas on a token's node share that node's tokens, otherwise
// all replicas do - and the one that costs less time is kept:
//
//   4 * sum over ranks of T_comm + (3 + recompute) * max over ranks of T_comp
//
// T_comp is tokens computed, T_comm tokens received from other ranks, weighed by what a token
// costs.
#pragma once

#include <vector>

#include "trainer/placement/policy.h"

namespace moetrain {

// Per token, in units of the time that an expert computes one. Assumed: the published planner takes
// them from a profile of its cluster (A100, NVLink within a node, 100 Gbit/s between nodes).
struct LaerCosts {
  double within_node = 0.01;
  double between_nodes = 0.1;
  double recompute = 1;  // forward again before backward
};

// The request is valid; tokens are taken to begin evenly on all ranks. replicas_min and domains do
// not matter; nodes do.
std::vector<LayerSlots> plan_laer(const PlacementRequest& request, const LaerCosts& costs = {});

// What a layer costs, in tokens computed. Every expert has a slot.
double laer_cost(const LayerSlots& slots, const std::vector<uint64_t>& loads, uint32_t nodes,
                 const LaerCosts& costs);

}  // namespace moetrain
