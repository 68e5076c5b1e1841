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
  int rounds = 12;
  // After this many seconds no further round begins, except for the first two.
  int seconds_max = 480;
};

// The arms: partial, with the largest K whose copy and bytes are within their bounds; all experts
// asynchronously; all experts, standing still until they are durable. The first two rounds are one
// run of each, those that follow one of partial. In each run turns with a snapshot after every step
// follow turns without, which they are compared with.
ckpt::Result<nlohmann::json> bench_step(const StepOptions& options);
std::string step_text(const nlohmann::json& document);

}  // namespace bench
