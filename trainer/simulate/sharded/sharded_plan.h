// ShardedPlanner: plans which rank computes which expert in a step, by a policy that sees the loads
// of earlier steps. The policies are those of trainer/placement. `laer` has its published
// candidates and cost (LaerScheme::kPublished), because the results are compared with published
// ones.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "trainer/placement/load_window.h"
#include "trainer/placement/policy.h"
#include "trainer/simulate/sharded/sharded_system.h"

namespace moetrain::simulate::sharded {

// The trainer's rule: the plan of step s is made from the sum of the five steps up to s - 2.
// Before there are any, and for the static policy, it is plan_static().
inline constexpr uint64_t kStepsSummed = LoadWindow::kStepsSummed;
inline constexpr uint64_t kPlanLag = 2;

class ShardedPlanner {
 public:
  // All three outlive it.
  ShardedPlanner(const ShardedModel& model, const Shape& shape, const ShardedSystem& system);

  // The plan of the next step, [layer]. Valid until the next call.
  Result<const std::vector<LayerSlots>*> next();
  // Tokens of that step.
  void record(LayerLoads loads);

 private:
  Result<std::vector<LayerSlots>> make(const PlacementRequest& request) const;

  const ShardedModel& model_;
  const Shape& shape_;
  const ShardedSystem& system_;
  std::deque<LayerLoads> known_;  // the newest last
  std::vector<LayerSlots> plan_;
};

}  // namespace moetrain::simulate::sharded
