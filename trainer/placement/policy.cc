#include "trainer/placement/policy.h"

#include <string>

#include "trainer/placement/lazarus.h"
#include "trainer/placement/static_blocks.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

std::string_view policy_name(PolicyName policy) {
  switch (policy) {
    case PolicyName::kStatic:
      return "static";
    case PolicyName::kEplb:
      return "eplb";
    case PolicyName::kFlexmoe:
      return "flexmoe";
    case PolicyName::kLazarus:
      return "lazarus";
    case PolicyName::kLaer:
      return "laer";
    case PolicyName::kFrontier:
      return "frontier";
  }
  return "?";
}

Result<PolicyName> parse_policy(std::string_view name) {
  std::string all;
  for (const PolicyName policy : kPolicies) {
    if (policy_name(policy) == name) return policy;
    if (!all.empty()) all += ", ";
    all += policy_name(policy);
  }
  return make_error(ErrorCode::kInvalidArgument, "placement policy '{}': one of {}", name, all);
}

namespace {

Result<std::vector<LayerSlots>> plan_lazarus(const PlacementRequest& request) {
  const LazarusOptions options{request.ranks, request.slots_per_rank, request.replicas_min};
  std::vector<LayerSlots> layers;
  layers.reserve(request.loads.size());
  for (const std::vector<uint64_t>& loads : request.loads) {
    CKPT_ASSIGN(LayerSlots slots, lazarus_layer(loads, options));
    layers.push_back(std::move(slots));
  }
  return layers;
}

}  // namespace

Result<std::vector<LayerSlots>> plan_placement(PolicyName policy, const PlacementRequest& request) {
  CKPT_TRY(validate(request));
  switch (policy) {
    case PolicyName::kStatic:
      return plan_static(request);
    case PolicyName::kLazarus:
      return plan_lazarus(request);
    case PolicyName::kEplb:
    case PolicyName::kFlexmoe:
    case PolicyName::kLaer:
    case PolicyName::kFrontier:
      break;
  }
  return make_error(ErrorCode::kFailedPrecondition, "placement policy {}: not available yet",
                    policy_name(policy));
}

}  // namespace moetrain
