// The result of ckptbench sharded. Pure: figures of runs in, JSON out.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/research/sharded_arms.h"
#include "bench/research/sharded_run.h"

namespace bench {

struct ShardedArmRuns {
  ShardedArm arm;
  std::vector<ShardedRun> runs;  // [round]
};

// All runs of one workload. The first arm is the reference; every arm has as many runs.
struct ShardedWorkloadRuns {
  std::string loads;  // "Zipf 1.2" or "trace"
  uint32_t ranks = 0;
  uint32_t slots = 0;  // of a rank in each layer, of arms that replicate
  uint32_t layers = 0;
  uint32_t experts = 0;          // of a layer
  uint64_t expert_elements = 0;  // parameters of one expert
  std::vector<ShardedArmRuns> arms;
};

// One row for each arm. At least two rounds.
nlohmann::json sharded_rows(const ShardedWorkloadRuns& workload);

// Which figures this number of cores can show. `ranks`: of the largest shape.
std::string note_on_cores(long cores, uint32_t ranks);

std::string sharded_row_text(const nlohmann::json& row);

}  // namespace bench
