// ckptbench sharded: what fully sharded experts are worth under skewed load, in real runs of
// moetrain.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/research/sharded_arms.h"
#include "formats/base/result.h"

namespace bench {

struct ShardedOptions {
  std::string directory = ".";
  std::string engine = "uring";
  std::vector<ShardedShape> shapes = {{2, 12}, {4, 8}};
  std::vector<std::string> arms;  // names of kShardedArms besides the reference; empty: all
  double skew = 1.2;              // moetrain --router-skew
  int orders = 3;                 // of popular experts, which rounds take in turn
  std::string trace;              // of token counts, CSV, may be gzip'ed; empty: none
  uint64_t trace_hold = 4;        // steps that one of its samples lasts
  uint32_t sequences = 64;        // of 64 tokens, in each step
  uint64_t steps = 12;            // of each run that are measured
  int rounds = 30;
  int budget_seconds = 480;  // a round is begun if it will end within them, or is the first or
                             // second
};

// A round is one run of every arm in every workload, in turns. Workloads: Zipf with each shape, and
// the trace with the last shape. Every arm is compared with the reference of its round.
ckpt::Result<nlohmann::json> bench_sharded(const ShardedOptions& options);
std::string sharded_text(const nlohmann::json& document);

}  // namespace bench
