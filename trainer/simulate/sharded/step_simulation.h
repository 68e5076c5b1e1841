// Step simulation: the mean step of one system on one shape, in virtual time. Pure.
//
// All ranks wait for the slowest at every layer where experts are fully sharded: the restore of the
// next layer needs all of them. Megatron's ranks wait for those of their expert parallel group, and
// for all others once a step, when gradients are reduced.
#pragma once

#include <cstdint>

#include "trainer/simulate/sharded/sharded_plan.h"
#include "trainer/simulate/sharded/sharded_system.h"

namespace moetrain::simulate::sharded {

// The parts of a step's time, in seconds. They add up to the step.
struct StepTime {
  double dense = 0;       // attention, embedding, output layer; all passes
  double experts = 0;     // of the mean rank
  double waiting = 0;     // of the mean rank for the busiest one of each layer
  double all_to_all = 0;  // of tokens, without waiting
  double exposed = 0;     // restores, re-shards and tensor parallel exchanges that nothing hides
  double other = 0;       // optimizer, routing
  double total() const { return dense + experts + waiting + all_to_all + exposed + other; }
};

struct ShardedOutcome {
  StepTime step;
  double max_over_mean =
      0;                  // tokens of the busiest rank over the mean, of layers and micro-batches
  double exchange_s = 0;  // what restores and re-shards take, hidden or not
  double restore_bytes = 0;  // that the mean rank receives in a step, experts and dense part
  double reshard_bytes = 0;
};

struct Sampling {
  uint64_t warm_up = 7;  // steps, after which planners know five
  uint64_t steps = 10;   // that count
};

// Planners may refuse: kInvalidArgument.
Result<ShardedOutcome> simulate_step(const ShardedModel& model, const Shape& shape,
                                     const ShardedSystem& system, const Sampling& sampling);

// The part of simulate_step() that is Megatron.
Result<ShardedOutcome> simulate_megatron(const ShardedModel& model, const Shape& shape,
                                         const Sampling& sampling);

}  // namespace moetrain::simulate::sharded
