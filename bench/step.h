// ckptbench step: what a checkpoint after every step adds to the step, in real runs of moetrain.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "formats/base/result.h"

namespace bench {

struct StepOptions {
  std::string directory = ".";
  std::string engine = "uring";
  uint32_t sequences = 256;  // of 64 tokens, in each step
  int rounds = 6;
  // No round is begun after so many seconds, if there have been kRoundsMin.
  int seconds_max = 480;
};

// One run of every arm makes a round: partial, with the largest K whose copy and bytes are within
// their bounds; all experts asynchronously; all experts, standing still until they are durable. In
// each run turns with a snapshot after every step follow turns without, which they are compared
// with.
ckpt::Result<nlohmann::json> bench_step(const StepOptions& options);
std::string step_text(const nlohmann::json& document);

}  // namespace bench
