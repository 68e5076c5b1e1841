// The placement a run trains with: a policy's answer for a model, a number of ranks and what the
// experts were given so far. Pure; the same for the first placement of a run and for every later.
#pragma once

#include <span>
#include <vector>

#include "trainer/model/config.h"
#include "trainer/parallel/expert_placement.h"
#include "trainer/placement/policy.h"

namespace moetrain {

struct PlacementOptions {
  PolicyName policy = PolicyName::kStatic;
  // Of each rank, in each layer. 0: as many as `static` needs, ceil(E / N); for other policies
  // twice as many, as long as that is not more than there are experts.
  uint32_t slots = 0;
  // Ranks that hold each expert, at least. 0: as it comes; for `lazarus` and `frontier` 2, as far
  // as ranks and slots allow.
  uint32_t replicas_min = 0;
  bool operator==(const PlacementOptions&) const = default;
};

// routed: tokens to every expert, [layers * experts]; empty: nothing is known, all are alike.
// current: what the ranks hold now, which `flexmoe` begins with; empty: nothing.
// Errors: those of plan_placement(), and kInvalidArgument for `static` without slots where there
// are more ranks than experts.
Result<ExpertPlacement> plan_experts(const PlacementOptions& options, const ModelConfig& shape,
                                     uint32_t ranks, std::span<const int64_t> routed,
                                     std::vector<LayerSlots> current = {});

}  // namespace moetrain
