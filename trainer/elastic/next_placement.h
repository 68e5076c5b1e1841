// The placement of a group that has changed. Pure.
#pragma once

#include <span>
#include <vector>

#include "trainer/model/config.h"
#include "trainer/parallel/planned_placement.h"

namespace moetrain {

// plan_experts(), as far as these ranks allow: slots grow to ceil(E / N) where fewer do not hold
// every expert once, within slots_max, and replicas_min becomes what is possible. routed: tokens to
// every expert, [layers * experts]; empty: all are alike. kResourceExhausted: lacks_slots(); ranks
// that ask for the same all get it.
Result<ComputePlacement> place_experts(const PlacementOptions& choice, const ModelConfig& shape,
                                       const RankGroup& group, std::span<const int64_t> routed,
                                       std::vector<LayerSlots> current = {});

// The same over those ranks of the group only that are `stays` (empty: all), the others get
// nothing. It begins
// with what these hold, where the policy can, and has as little to move as keep_in_place() finds:
// held[rank][i] says whether the rank holds expert i of the grid of layers and experts.
Result<ComputePlacement> next_placement(const PlacementOptions& choice, const ModelConfig& shape,
                                        const RankGroup& group, const std::vector<bool>& stays,
                                        std::span<const int64_t> routed,
                                        const std::vector<std::vector<bool>>& held);

// Sharded experts: the options of a group of so many ranks. Slots grow to ceil(E / N) where fewer
// cannot compute every expert.
PlacementOptions placing_of_group(PlacementOptions choice, const ModelConfig& shape,
                                  uint32_t ranks);

// The least number of failure domains that hold an expert: how many that fail at once are survived,
// plus one. The placement is of this group.
uint32_t effective_replicas(const ComputePlacement& placement, const RankGroup& group);

}  // namespace moetrain
