// ckptbench pec: what partial experts checkpointing costs, by real saves through a real ckptd of
// units with the shapes of two published models, for all experts, half of them, ... and one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/include/ckpt/ckpt.h"
#include "formats/base/result.h"
#include "trainer/partial/sharding.h"

namespace bench {

struct PecOptions {
  std::vector<std::string> models;  // names; none: all
  std::vector<uint32_t> ks;         // none: N, N/2, ..., 1
  uint32_t ranks = 8;               // data parallel and expert parallel, both
  uint32_t repeats = 3;
  uint64_t rank_arena_bytes = 640ull << 20;
  moetrain::DenseSharding sharding = moetrain::DenseSharding::kBytes;
  ckpt_alarms alarms = CKPT_ALARMS_WARN;
  std::string engine = "uring";
  std::string directory = ".";
};

// {bench, machine, shape, rows, composition}: docs/benchmarks.md.
ckpt::Result<nlohmann::json> bench_pec(const PecOptions& options);
std::string pec_text(const nlohmann::json& document);

}  // namespace bench
