// step_plan: which rank computes which expert in one training step, with fully sharded experts.
//
// A rank then owns a part of every expert, and restores the experts of its slots before each layer.
// So a plan moves no state, and no replica is needed for safety: policies differ in balance and
// traffic only. Tokens go to replicas by lite routing (token_shares.h). Pure and deterministic: the
// same options and loads give the same plan on every rank.
//
//   static    the same plan in every step: blocks of experts, repeated, where the slots divide into
//             whole blocks; otherwise as many replicas of each expert as even as slots allow
//   eplb      as in policy.h
//   laer      as in policy.h, the nodes of ranks known
//   frontier  its search for balance, without a wanted recovery
#pragma once

#include <vector>

#include "trainer/placement/laer.h"
#include "trainer/placement/load_window.h"
#include "trainer/placement/policy.h"

namespace moetrain {

struct StepPlanOptions {
  PolicyName policy = PolicyName::kLaer;
  uint32_t layers = 0;
  uint32_t experts = 0;  // of a layer
  uint32_t ranks = 0;
  uint32_t slots_per_rank = 0;  // C; more than there are experts is as many as there are
  // [rank]: 0 .. nodes - 1, each of them used. Empty: one node.
  std::vector<uint32_t> node_of_rank;
  LaerScheme laer_scheme = LaerScheme::kLite;  // kPublished: for comparisons
};

// kInvalidArgument, in a sentence: a number that is zero or too large, slots that cannot hold every
// expert, nodes that are not numbered, or a policy whose replicas are for safety (`lazarus`,
// `flexmoe`).
Status validate(const StepPlanOptions& options);

// [layer]: its slots; every rank has min(slots_per_rank, experts), all in use. loads: as
// options.layers and experts say; empty: the plan of `static`. A layer without tokens is planned as
// if its experts had equal loads. Errors: those of validate(), and more than kPlacementTokensMax
// tokens.
Result<std::vector<LayerSlots>> plan_step(const StepPlanOptions& options, const LayerLoads& loads);

}  // namespace moetrain
