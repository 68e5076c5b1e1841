// What ckptbench kills says: trials in, a document out.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "bench/kill_ladder.h"
#include "bench/kill_trial.h"

namespace bench {

struct KillArmTrials {
  KillArm arm;
  bool same_bits = false;   // losses must have the bits of a run that lost nobody
  uint64_t redone_max = 0;  // completed steps that may be done again
  std::vector<std::vector<uint32_t>> victims;  // that take turns
  std::vector<KillTrial> trials;
};

// Without what is known of the machine and the workload. `rows` has an entry for every arm that has
// trials.
nlohmann::json kills_json(const std::vector<KillArmTrials>& arms,
                          const std::optional<Ladder>& ladder);

}  // namespace bench
