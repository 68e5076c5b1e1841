// moetrain simulate --sharded: systems that shard experts, on the step of a cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/result.h"

namespace moetrain {

struct ShardedFlags {
  std::string model_file;
  std::vector<std::string> settings;
  std::string policies = "all";
  std::string shape = "all";
  uint64_t steps = 10;
  std::optional<double> fit_skew;  // max/mean of tokens
  bool ablation = false, sensitivity = false, json = false;
};

// Prints the comparison, or with fit_skew the skew of every chosen shape. The exit code.
ckpt::Result<int> simulate_sharded(const ShardedFlags& flags);

}  // namespace moetrain
