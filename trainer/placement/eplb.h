// eplb: the expert parallelism load balancer of DeepSeek, as they describe it.
//
// Extra slots go, one after the other, to the expert with most load per replica. Replicas, the
// heaviest first, go to the lightest rank that has room. Hierarchical, where nodes divide the
// expert groups: groups are packed to nodes in the same way first, then each node replicates its
// experts within itself and packs them to its ranks, so that a group's tokens stay on a node. The
// example of its README is a test.
#pragma once

#include <vector>

#include "trainer/placement/policy.h"

namespace moetrain {

// The request is valid. replicas_min and domains do not matter: two replicas of an expert may even
// be on one rank. Ties go to the lower number.
std::vector<LayerSlots> plan_eplb(const PlacementRequest& request);

// [item]: its pack, the heaviest first into the lightest pack with room. Packs hold the same number
// of items, which they divide; [pack] holds items in the order in which they came.
std::vector<std::vector<uint32_t>> pack_evenly(const std::vector<double>& weights, uint32_t packs);

}  // namespace moetrain
