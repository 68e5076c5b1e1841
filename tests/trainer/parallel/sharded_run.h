// Training with replicated or sharded experts under placements that change from step to step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/trainer/comm/comm_groups.h"
#include "tests/trainer/training/training.h"
#include "trainer/model/expert_store.h"

namespace moetrain {

using PlacementOfStep = std::function<ComputePlacement(uint64_t step)>;

struct ShardedRun {
  TrainConfig config;
  ExpertState state = ExpertState::kSharded;
  uint32_t ranks = 1;
  uint64_t steps = 1;
  PlacementOfStep placement;  // kReplicated: that of step 0 for all steps
  CommKind kind = CommKind::kLocal;
  ExpertSchedule schedule = {};
  bool threaded = true;  // there is a communication thread, as far as the schedule needs it
};

struct ShardedResult {
  std::vector<uint32_t> loss_bits;
  std::vector<double> norms;
  State state;  // whole parameters and moments, put together from the parts of all ranks
  std::vector<uint64_t> memory_bytes;             // [rank], after the last step
  std::vector<uint64_t> memory_bound;             // [rank]
  std::vector<StepTraffic> traffic_of_all;        // [step]
  std::vector<std::vector<StepTraffic>> traffic;  // [rank][step]
};

// Fails the test where ranks disagree about a loss, a norm or a replicated element.
ShardedResult train_sharded(const ShardedRun& run);

// Every expert on a random rank, then random further copies, several on one rank among them, up to
// `slots` of each rank. Ranks may be left without any. The same for the same seed.
ComputePlacement random_placement(const ModelConfig& shape, uint32_t ranks, uint32_t slots,
                                  uint64_t seed);

// A model whose experts have 3 * 10 * 7 = 210 elements, which 4 and 8 do not divide; five experts.
TrainConfig odd_config();

}  // namespace moetrain
