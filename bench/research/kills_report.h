// Report of ckptbench kills: trials in, a JSON document out.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "bench/research/kill_ladder.h"
#include "bench/research/kill_trial.h"

namespace bench {

struct KillArmTrials {
  KillArm arm;
  bool same_bits = false;   // losses must match a run without losses of ranks, bit for bit
  uint64_t redone_max = 0;  // largest number of completed steps that may be repeated
  std::vector<std::vector<uint32_t>> victims;  // sets of ranks; trials take them in turns
  std::vector<KillTrial> trials;
};

// The document without the description of the machine and the workload. `rows` has one entry for
// each arm with trials.
nlohmann::json kills_json(const std::vector<KillArmTrials>& arms,
                          const std::optional<Ladder>& ladder);

}  // namespace bench
