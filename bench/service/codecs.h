// ckptbench codecs: how much codecs compress real training state, how fast a core does it, and the
// resulting speedup on this disk.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/base/result.h"

namespace bench {

struct CodecsOptions {
  std::string directory = ".";  // on the disk to measure
  std::string data;             // training text; empty: the trainer's
  uint64_t steps = 200;         // training steps before the first measurement
  std::vector<uint64_t> apart;  // deltas: to the version this many steps earlier; empty: 1 and 10
  double seconds_min = 0.5;     // CPU time of each measurement, at least
  uint64_t disk_bytes = 1ull << 30;
};
// kInvalidArgument: a delta would need a version from before the first step.
ckpt::Result<nlohmann::json> bench_codecs(const CodecsOptions& options);

// The document as lines of text.
std::string codecs_text(const nlohmann::json& document);

}  // namespace bench
