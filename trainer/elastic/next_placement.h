// The placement of a group that has changed. Pure.
#pragma once

#include <span>
#include <vector>

#include "trainer/model/config.h"
#include "trainer/parallel/planned_placement.h"

namespace moetrain {

// plan_experts(), adapted to these ranks: slots grow to ceil(E / N), within slots_max, if fewer
// cannot hold every expert once, and replicas_min falls to what is possible. routed: tokens to
// every expert, [layers * experts]; empty: equal loads. kResourceExhausted: lacks_slots(); the same
// on all ranks of the group.
Result<ComputePlacement> place_experts(const PlacementOptions& choice, const ModelConfig& shape,
                                       const RankGroup& group, std::span<const int64_t> routed,
                                       std::vector<LayerSlots> current = {});

// The same for only those ranks of the group that are `stays` (empty: all); the others get no
// expert. Starts from what these ranks hold, if the policy supports that, and is permuted by
// keep_in_place(): held[rank][i] is true if the rank holds expert i of the grid of layers and
// experts.
Result<ComputePlacement> next_placement(const PlacementOptions& choice, const ModelConfig& shape,
                                        const RankGroup& group, const std::vector<bool>& stays,
                                        std::span<const int64_t> routed,
                                        const std::vector<std::vector<bool>>& held);

// Sharded experts: the options of a group of `ranks` ranks. Slots grow to ceil(E / N) if fewer
// cannot compute every expert.
PlacementOptions placing_of_group(PlacementOptions choice, const ModelConfig& shape,
                                  uint32_t ranks);

// The least number of failure domains that hold an expert: one more than the number of domains that
// may fail at once without a loss. The placement is of this group.
uint32_t effective_replicas(const ComputePlacement& placement, const RankGroup& group);

}  // namespace moetrain
