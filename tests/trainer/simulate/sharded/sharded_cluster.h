// A cluster whose step can be worked out by hand, and one of eight ranks with skewed loads.
#pragma once

#include "trainer/simulate/sharded/step_simulation.h"

namespace simtest {

// Two nodes of two ranks; two layers of two experts, one on each rank; four sequences of 90 tokens,
// of which one expert of each layer gets 60 and the other 30. A millisecond for each token in the
// dense part, and in an expert.
moetrain::simulate::sharded::ShardedModel hand_model();

// Two nodes of four ranks; four layers of eight experts, two slots, zipf 1.2 and noise.
moetrain::simulate::sharded::ShardedModel skewed_model();

const moetrain::simulate::sharded::ShardedSystem& sharded_system(std::string_view name);

// Simulates the model's only shape; fails the test if it cannot be simulated.
moetrain::simulate::sharded::ShardedOutcome step_of(
    const moetrain::simulate::sharded::ShardedModel& model,
    const moetrain::simulate::sharded::ShardedSystem& system);

}  // namespace simtest
