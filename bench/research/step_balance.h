// step_balance: training steps without the training, to see how well the experts' placement follows
// the load. Each step routes tokens drawn at random around the loads, under the plan that was made
// from the counts up to two steps before. Pure: the same options give the same figures anywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/base/result.h"
#include "trainer/placement/step_plan.h"

namespace bench {

struct StepBalanceOptions {
  moetrain::StepPlanOptions plan;   // layers and experts as the loads have
  uint64_t tokens_per_rank = 4096;  // in each step and layer
  uint32_t top_k = 1;               // distinct experts of a token
  uint64_t steps_per_sample = 20;   // steps with the same loads
  uint64_t steps_before = 10;       // not counted
  uint64_t replan_every = 1;
  uint64_t seed = 1;
};

struct StepBalance {
  uint64_t steps = 0;        // counted
  double max_over_mean = 0;  // tokens of the busiest rank, over layers and steps the mean
  double max_over_mean_p99 = 0;
  double between_nodes = 0;  // share of all tokens that leave their node
  double restored = 0;       // distinct experts of a rank, the mean
};

// samples: [sample][layer][expert], the weights that experts are drawn with; the same shape in all,
// at least one, and in every layer top_k experts that are not zero. Errors: those of
// StepPlanner::make().
ckpt::Result<StepBalance> step_balance(const std::vector<moetrain::LayerLoads>& samples,
                                       const StepBalanceOptions& options);

// One sample: experts with weights (i + 1)^-exponent, in another order in each layer.
moetrain::LayerLoads zipf_weights(uint32_t layers, uint32_t experts, double exponent,
                                  uint64_t seed);

}  // namespace bench
