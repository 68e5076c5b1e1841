// What the other policies come to, for `frontier` to be held against and to go on from.
#pragma once

#include <optional>
#include <vector>

#include "trainer/placement/policy.h"

namespace moetrain {

// What a policy plans, every slot of it full: where `static` leaves slots empty, ranks repeat what
// they hold, or hold what the most loaded block of experts holds. That costs neither balance nor
// recovery. None if some expert has fewer than replicas_min distinct domains.
Result<std::optional<std::vector<LayerSlots>>> promised_layers(PolicyName policy,
                                                               const PlacementRequest& request);

// Max over mean, the mean over layers.
double mean_balance(const std::vector<LayerSlots>& layers, const PlacementRequest& request);

// False if the experts with a single domain alone make what is wanted impossible: quick, at any
// size.
bool may_reach(const std::vector<LayerSlots>& layers, const PlacementRequest& request,
               const std::vector<RecoveryWanted>& wanted);

}  // namespace moetrain
