// ckptbench kills: cost of losing ranks, in real runs of moetrain.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/base/result.h"

namespace bench {

struct KillsOptions {
  std::string directory = ".";
  std::string engine = "uring";
  int rounds = 10;
  int seconds_max = 900;  // no round is begun later
  bool sharded = false;   // --expert-state
  // Names of kKillArms, or "ladder". Empty: all. "taken" and "ladder" need replicated experts.
  std::vector<std::string> arms;
  uint32_t checkpoint_every = 0;           // steps; 0: 8, with sharded experts 1
  uint32_t collective_timeout_ms = 5'000;  // of the arm "hang"
};

// A round is one run of every arm; in each, ranks are lost in the middle of a step, and the time
// until all that are left have completed another one is measured. Losses are compared with runs
// that lose nobody. "ladder" is one run, from all ranks down to one and back.
ckpt::Result<nlohmann::json> bench_kills(const KillsOptions& options);
std::string kills_text(const nlohmann::json& document);

}  // namespace bench
