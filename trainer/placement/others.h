// Placements of the other policies, as baselines and starting points of `frontier`.
#pragma once

#include <optional>
#include <vector>

#include "trainer/placement/policy.h"

namespace moetrain {

// A policy's placement with all slots full: slots that `static` leaves empty get copies of the
// rank's experts, or those of the most loaded block of experts. That costs neither balance nor
// recovery. None if some expert has fewer than replicas_min distinct domains.
Result<std::optional<std::vector<LayerSlots>>> promised_layers(PolicyName policy,
                                                               const PlacementRequest& request);

// Max over mean, the mean over layers.
double mean_balance(const std::vector<LayerSlots>& layers, const PlacementRequest& request);

// False if the experts with a single domain already make `wanted` impossible: fast, at any
// size.
bool may_reach(const std::vector<LayerSlots>& layers, const PlacementRequest& request,
               const std::vector<RecoveryWanted>& wanted);

}  // namespace moetrain
