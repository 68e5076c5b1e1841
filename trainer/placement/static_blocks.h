// Classic expert parallelism: E/ep experts to a rank, in blocks, repeated by the data parallel
// groups. The baseline of comparisons.
#pragma once

#include <vector>

#include "trainer/placement/policy.h"

namespace moetrain {

// ep is the smallest divisor of the ranks whose blocks fit the slots; rank r holds experts
// [b E / ep, (b + 1) E / ep) with b = r mod ep, the same in every layer. Slots may stay empty, and
// a rank may, if there are more than experts. The request is valid; loads and replicas_min do not
// matter.
std::vector<LayerSlots> plan_static(const PlacementRequest& request);

}  // namespace moetrain
