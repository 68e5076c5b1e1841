// frontier, ours: the best balance found among placements that survive enough.
//
// Layers planned independently multiply their risks, and layers that all follow Maximum Rank
// Overlap are safe together but unbalanced: every rank of a group holds the same experts. Here one
// family of domain sets is chosen for all layers (families.h); every expert of every layer holds
// all of one of its members, and whatever slots are left go where the load is. So the joint
// recovery is that of the family alone, and within it each layer is balanced by counts, slots and
// local search (layer_search.h).
//
// Of the families that reach the wanted recovery, the most survivable one is taken whose balance on
// a few layers, the most skewed one among them, is within kBalanceTolerance of the best, or of what
// is good enough; where nothing but balance is wanted, the best balanced.
#pragma once

#include <vector>

#include "trainer/placement/policy.h"

namespace moetrain {

inline constexpr double kBalanceTolerance = 0.02;  // of the mean load

// The request is valid. kFailedPrecondition if no family reaches request.recovery_wanted.
Result<std::vector<LayerSlots>> plan_frontier(const PlacementRequest& request);

// One choice between balance and recovery.
struct FrontierPoint {
  std::vector<LayerSlots> layers;
  double max_over_mean = 1;        // mean over layers
  double max_over_mean_worst = 1;  // of the worst layer
  std::vector<double> recovery;    // [k - 1]: joint, k = 1 .. domains - 1; as sure as judge()'s
};

// All choices, regardless of what the request wants: no point is both better balanced and more
// survivable (by the sum of recovery at the numbers of failures asked) than another. Ordered from
// the best balanced to the most survivable. Plans every family for all layers, and takes that much
// longer.
Result<std::vector<FrontierPoint>> frontier_points(const PlacementRequest& request);

// The numbers of failures that count: request.failures, or 1, 2 and 4 as far as there are domains.
std::vector<uint32_t> failures_asked(const PlacementRequest& request);

}  // namespace moetrain
