// The placement of a run: a policy's plan for a model, a number of ranks and the tokens routed so
// far. Pure; used for the first placement of a run and for every later one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/config.h"
#include "trainer/placement/compute_placement.h"
#include "trainer/placement/domains.h"
#include "trainer/placement/policy.h"
#include "trainer/placement/step_plan.h"

namespace moetrain {

struct PlacementOptions {
  PolicyName policy = PolicyName::kStatic;
  // Slots of each rank in each layer. 0: as many as `static` needs, ceil(E / N); for other policies
  // twice as many, as long as that is not more than there are experts.
  uint32_t slots = 0;
  // Slots that a rank has memory for: an upper bound of every plan, also after losses of ranks. 0:
  // no bound.
  uint32_t slots_max = 0;
  // Failure domains that hold each expert, at least. 0: no minimum, except for `lazarus` and
  // `frontier`: 2, as far as domains and slots allow.
  uint32_t replicas_min = 0;
  bool operator==(const PlacementOptions&) const = default;
};

// Why this many ranks cannot hold every expert within slots_max, and what they would need; nullopt:
// they can.
std::optional<std::string> lacks_slots(const PlacementOptions& options, const ModelConfig& shape,
                                       uint32_t ranks);

// The slots of each rank and layer, if the policy distributes slots: the requested number, or the
// defaults above.
uint32_t slots_per_rank(const PlacementOptions& options, const ModelConfig& shape, uint32_t ranks);

// The largest number of distinct domains of these ranks that every expert can be in, with the slots
// of these options.
uint32_t most_replicas(const PlacementOptions& options, const ModelConfig& shape,
                       const RankGroup& group);

// routed: tokens to every expert, [layers * experts]; empty: nothing is known, all are alike.
// current: what the ranks hold now, which `flexmoe` begins with; empty: nothing.
// Errors: those of plan_placement(), kInvalidArgument for `static` without slots where there
// are more ranks than experts, and for lacks_slots().
Result<ComputePlacement> plan_experts(const PlacementOptions& options, const ModelConfig& shape,
                                      const RankGroup& group, std::span<const int64_t> routed,
                                      std::vector<LayerSlots> current = {});

// The same options for the plans of steps of so many ranks, where experts are sharded; `slots` is
// then the number of experts that a rank computes in a layer. node_of_rank: as in StepPlanOptions.
StepPlanOptions step_plan_options(const PlacementOptions& options, const ModelConfig& shape,
                                  uint32_t ranks, std::vector<uint32_t> node_of_rank = {});

// Sharded experts: the plan of a step before any counts are known, which the store is made with.
// node_of_rank: as in StepPlanOptions. Errors: those of plan_step().
Result<ComputePlacement> plan_first_step(const PlacementOptions& options, const ModelConfig& shape,
                                         uint32_t ranks, const std::vector<uint32_t>& node_of_rank);

}  // namespace moetrain
