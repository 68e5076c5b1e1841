// flexmoe: the scheduler of FlexMoE, as it is described.
//
// It begins with the experts that the ranks hold (without any, with replicas as even as the slots
// allow), and changes one replica at a time: the expert with most load per replica expands into a
// slot of the one with least, which shrinks; then replicas migrate from the most loaded rank. A
// change is made only if a cost model says that it pays:
//
//   (time of the step before - after) * steps until the next plan > time to copy the replica
//
// where a step takes as long as its most loaded rank computes, and expanding sends an expert's
// state to a rank that does not hold it.
//
// That is the policy maker of FlexMoE (arXiv 2304.03946): one expand with one shrink at a time,
// each judged by itself, until none gains. So it ends at a tie: where many ranks are equally loaded
// by the hottest experts, no single replica lowers the maximum by what a copy costs. Judging
// several changes together would get past that, and would be another scheduler than the one
// compared with.
#pragma once

#include <vector>

#include "trainer/placement/policy.h"

namespace moetrain {

// In units of the time that a rank takes to compute the mean load. Assumed: a replica's state is
// sent in a fifth of a step, and the loads stay for 50 steps.
struct FlexmoeCosts {
  double copy = 0.2;
  double steps = 50;
};

// The request is valid. Current placements that miss an expert, or hold more than the slots, are
// completed or cut first. replicas_min and domains do not matter.
std::vector<LayerSlots> plan_flexmoe(const PlacementRequest& request,
                                     const FlexmoeCosts& costs = {});

}  // namespace moetrain
