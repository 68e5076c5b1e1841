// ckptbench save and fragments: time from begin to durable, against the raw speed of the disk.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/common/paired.h"
#include "bench/service/save_run.h"

namespace bench {

// Smallest ratios to the limit that the design allows: whole fragments, and 10,000 small ones.
inline constexpr double kSavePassRatio = 0.95;
inline constexpr double kFragmentsPassRatio = 0.90;
inline constexpr uint64_t kFragments = 10'000;
inline constexpr uint64_t kFragmentBytes = 64ull << 10;
inline constexpr int kFragmentSavesPerSample = 4;  // of 0.7 GB each

struct SaveOptions {
  std::string bench = "save";
  double pass_ratio = kSavePassRatio;
  SaveShape shape;
  Pairs pairs;
  int saves_per_sample = 1;  // enough for a sample that is long enough to be meaningful
  std::string directory = ".";
  bool engine_only = false;
};
// The document of report.h, plus rewrite, resident_bytes_peak and cpu (cpu_pairs.h).
ckpt::Result<nlohmann::json> bench_save(const SaveOptions& options);
std::string save_text(const nlohmann::json& document);

}  // namespace bench
