#include "trainer/placement/policy.h"

#include <algorithm>
#include <string>

#include "formats/base/assert.h"
#include "trainer/placement/eplb.h"
#include "trainer/placement/flexmoe.h"
#include "trainer/placement/frontier.h"
#include "trainer/placement/laer.h"
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

Result<std::vector<LayerSlots>> plan(PolicyName policy, const PlacementRequest& request) {
  switch (policy) {
    case PolicyName::kStatic:
      return plan_static(request);
    case PolicyName::kEplb:
      return plan_eplb(request);
    case PolicyName::kFlexmoe:
      return plan_flexmoe(request);
    case PolicyName::kLazarus:
      return plan_lazarus(request);
    case PolicyName::kLaer:
      return plan_laer(request);
    case PolicyName::kFrontier:
      return plan_frontier(request);
  }
  CKPT_ASSERT(false);
  return std::vector<LayerSlots>();
}

}  // namespace

bool has_no_load(const std::vector<uint64_t>& loads) {
  return std::ranges::all_of(loads, [](uint64_t load) { return load == 0; });
}

Result<std::vector<LayerSlots>> plan_placement(PolicyName policy, const PlacementRequest& request) {
  CKPT_TRY(validate(request));
  if (std::ranges::none_of(request.loads, has_no_load)) return plan(policy, request);
  PlacementRequest even = request;
  for (std::vector<uint64_t>& loads : even.loads) {
    if (has_no_load(loads)) std::ranges::fill(loads, 1);
  }
  return plan(policy, even);
}

}  // namespace moetrain
