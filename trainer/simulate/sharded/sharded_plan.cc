#include "trainer/simulate/sharded/sharded_plan.h"

#include "trainer/placement/flexmoe.h"
#include "trainer/placement/static_blocks.h"

namespace moetrain::simulate::sharded {

ShardedPlanner::ShardedPlanner(const ShardedModel& model, const Shape& shape,
                               const ShardedSystem& system)
    : model_(model), shape_(shape), system_(system) {}

Result<const std::vector<LayerSlots>*> ShardedPlanner::next() {
  PlacementRequest request;
  request.ranks = model_.ranks();
  request.slots_per_rank = static_cast<uint32_t>(shape_.slots);
  request.nodes = static_cast<uint32_t>(model_.nodes);
  const auto layers = static_cast<size_t>(shape_.layers);
  const auto experts = static_cast<size_t>(shape_.experts);
  request.loads.assign(layers, std::vector<uint64_t>(experts, 1));
  CKPT_TRY(validate(request));
  if (known_.size() < kPlanLag) {
    plan_ = plan_static(request);
    return &plan_;
  }
  if (system_.plan == PolicyName::kStatic) return &plan_;
  for (auto& layer : request.loads) layer.assign(experts, 0);
  for (size_t step = 0; step + kPlanLag <= known_.size(); ++step) {
    for (size_t layer = 0; layer < layers; ++layer) {
      for (size_t e = 0; e < experts; ++e) request.loads[layer][e] += known_[step][layer][e];
    }
  }
  request.current = plan_;
  CKPT_ASSIGN(plan_, make(request));
  return &plan_;
}

Result<std::vector<LayerSlots>> ShardedPlanner::make(const PlacementRequest& request) const {
  if (system_.plan == PolicyName::kLaer) {
    return plan_laer(request, LaerScheme::kPublished, laer_costs(model_, shape_),
                     system_.candidates);
  }
  // A new plan moves no state, so that a copy costs nothing.
  if (system_.plan == PolicyName::kFlexmoe) return plan_flexmoe(request, {.copy = 0});
  return plan_placement(system_.plan, request);
}

void ShardedPlanner::record(LayerLoads loads) {
  known_.push_back(std::move(loads));
  if (known_.size() >= kStepsSummed + kPlanLag) known_.pop_front();
}

}  // namespace moetrain::simulate::sharded
