// ckptbench restore: restore of a whole view into the memory of trainers, against the raw speed of
// the disk.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/common/paired.h"
#include "bench/service/save_run.h"

namespace bench {

// Smallest ratio to the limit that the design allows.
inline constexpr double kRestorePassRatio = 0.95;

struct RestoreBenchOptions {
  SaveShape shape;
  Pairs pairs;
  std::string directory = ".";
};
ckpt::Result<nlohmann::json> bench_restore(const RestoreBenchOptions& options);

}  // namespace bench
