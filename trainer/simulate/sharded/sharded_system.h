// ShardedSystems: the compared systems. Systems with fully sharded experts run on one stack and
// differ in their plan, their schedule, or both; Megatron is another stack.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "trainer/placement/laer.h"
#include "trainer/placement/policy.h"
#include "trainer/simulate/sharded/costs.h"

namespace moetrain::simulate::sharded {

struct ShardedSystem {
  std::string_view name;
  bool fully_sharded = true;  // else: Megatron's expert parallelism and tensor parallel attention
  PolicyName plan = PolicyName::kStatic;
  LaerCandidates candidates = LaerCandidates::kAll;
  Schedule schedule;
  Sharing sharing = Sharing::kNode;
};

// laer, flexmoe, eplb, fsdp-ep, megatron.
std::span<const ShardedSystem> sharded_systems();
// laer, and laer without one ingredient each; fsdp-ep is without its planner.
std::span<const ShardedSystem> ablations();
// "a,b,c" or "all"; no name twice. kInvalidArgument names all of them.
Result<std::vector<const ShardedSystem*>> parse_sharded_systems(std::string_view names);

}  // namespace moetrain::simulate::sharded
