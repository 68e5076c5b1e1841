// ckptbench codecs: how much smaller codecs make real training state, how fast a core does it, and
// what that comes to with the disk at hand.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/base/result.h"

namespace bench {

struct CodecsOptions {
  std::string directory = ".";  // on the disk to measure
  std::string data;             // the text to learn from; empty: the trainer's
  uint64_t steps = 200;         // of training before anything is measured
  std::vector<uint64_t> apart;  // deltas: to the version this many steps earlier; empty: 1 and 10
  double seconds_min = 0.5;     // of processor time, of each measurement
  uint64_t disk_bytes = 1ull << 30;
};
// kInvalidArgument: a delta to what lies before the first step.
ckpt::Result<nlohmann::json> bench_codecs(const CodecsOptions& options);

// The document in lines for people.
std::string codecs_text(const nlohmann::json& document);

}  // namespace bench
