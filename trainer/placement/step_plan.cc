#include "trainer/placement/step_plan.h"

#include <algorithm>
#include <numeric>

#include "formats/base/assert.h"
#include "trainer/placement/static_blocks.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

PlacementRequest request_of(const StepPlanOptions& options, LayerLoads loads) {
  return {.loads = std::move(loads),
          .ranks = options.ranks,
          .slots_per_rank = std::min(options.slots_per_rank, options.experts)};
}

NodeGroups nodes_of(const StepPlanOptions& options) {
  if (options.node_of_rank.empty()) return NodeGroups::even(options.ranks, 1);
  return NodeGroups(options.node_of_rank);
}

std::vector<LayerSlots> by_laer(const StepPlanOptions& options, const LayerLoads& loads) {
  const NodeGroups nodes = nodes_of(options);
  const uint32_t slots_per_rank = std::min(options.slots_per_rank, options.experts);
  LaerPlanner planner(nodes, slots_per_rank, options.experts, options.laer_scheme);
  std::vector<LayerSlots> layers;
  layers.reserve(loads.size());
  for (const std::vector<uint64_t>& of_layer : loads) layers.push_back(planner.plan(of_layer));
  return layers;
}

// Blocks of experts where they use every slot and give every expert as many replicas.
std::vector<LayerSlots> even_plan(const StepPlanOptions& options) {
  LayerLoads equal(1, std::vector<uint64_t>(options.experts, 1));
  const PlacementRequest request = request_of(options, std::move(equal));
  const uint32_t slots = request.slots_per_rank;
  const bool blocks =
      options.experts % slots == 0 && options.ranks % (options.experts / slots) == 0;
  const LayerSlots layer =
      blocks ? plan_static(request).front() : by_laer(options, request.loads).front();
  return std::vector<LayerSlots>(options.layers, layer);
}

bool has_shape(const StepPlanOptions& options, const LayerLoads& loads) {
  return loads.size() == options.layers && std::ranges::all_of(loads, [&](const auto& layer) {
           return layer.size() == options.experts;
         });
}

Status check_nodes(const StepPlanOptions& options) {
  const std::vector<uint32_t>& nodes = options.node_of_rank;
  if (nodes.empty()) return {};
  if (nodes.size() != options.ranks) {
    return make_error(ErrorCode::kInvalidArgument, "step plan: nodes of {} ranks, there are {}",
                      nodes.size(), options.ranks);
  }
  std::vector<bool> used(nodes.size());
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    if (nodes[rank] >= nodes.size()) {
      return make_error(ErrorCode::kInvalidArgument, "step plan: rank {} is on node {} of {} ranks",
                        rank, nodes[rank], nodes.size());
    }
    used[nodes[rank]] = true;
  }
  const uint32_t count = std::ranges::max(nodes) + 1;
  for (uint32_t node = 0; node < count; ++node) {
    if (used[node]) continue;
    return make_error(ErrorCode::kInvalidArgument, "step plan: no rank is on node {}", node);
  }
  return {};
}

}  // namespace

Status validate(const StepPlanOptions& options) {
  if (options.policy == PolicyName::kLazarus || options.policy == PolicyName::kFlexmoe) {
    return make_error(ErrorCode::kInvalidArgument,
                      "step plan: policy {} places replicas that hold state, and fully sharded "
                      "experts have none; use static, eplb, laer or frontier",
                      policy_name(options.policy));
  }
  if (options.layers == 0 || options.experts == 0) {
    return make_error(ErrorCode::kInvalidArgument, "step plan: {} layers of {} experts",
                      options.layers, options.experts);
  }
  CKPT_TRY(validate(
      request_of(options, LayerLoads(options.layers, std::vector<uint64_t>(options.experts)))));
  return check_nodes(options);
}

Result<std::vector<LayerSlots>> plan_step(const StepPlanOptions& options, const LayerLoads& loads) {
  CKPT_TRY(validate(options));
  if (loads.empty() || options.policy == PolicyName::kStatic || options.ranks == 1) {
    return even_plan(options);
  }
  CKPT_ASSERT(has_shape(options, loads));
  PlacementRequest request = request_of(options, loads);
  if (options.policy != PolicyName::kLaer) {
    // Only balance counts.
    if (options.policy == PolicyName::kFrontier) request.recovery_wanted = {{1, 0}};
    return plan_placement(options.policy, request);
  }
  CKPT_TRY(validate(request));
  for (std::vector<uint64_t>& layer : request.loads) {
    if (has_no_load(layer)) std::ranges::fill(layer, 1);
  }
  return by_laer(options, request.loads);
}

}  // namespace moetrain
