// ckptbench stall: how long a trainer is blocked by a snapshot, against a plain copy of the bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/common/paired.h"
#include "formats/base/result.h"

namespace bench {

struct StallOptions {
  uint64_t bytes = 512ull << 20;
  uint64_t slab_bytes = 64ull << 20;
  uint64_t fragment_bytes = 16ull << 20;
  std::string engine = "uring";
  std::string directory = ".";
  Pairs pairs{.at_least = 24};
};
// The document of report.h, plus first_save and first_save_cold:{ratio_to_limit, ratio_interval,
// self_ratio, self_interval, pairs_added, seconds, open_seconds}: saves that are the first of their
// session, begun as soon as it is open. first_save: on a daemon that has had time to fill its pool
// of warm memory; same bound, with a verdict. first_save_cold: on a daemon without a pool.
ckpt::Result<nlohmann::json> bench_stall(const StallOptions& options);
std::string stall_text(const nlohmann::json& document);

}  // namespace bench
