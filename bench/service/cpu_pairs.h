// CPU time of a save, pair by pair, compared with the CPU time of the limit's own write loop plus
// one pass of CRC32C over the same number of bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/common/paired.h"

namespace bench {

// Largest ratio that the design allows.
inline constexpr double kCpuPassRatio = 1.5;
// Inconclusive if loop plus CRC pass vary more than this from pair to pair. The bound is wider than
// kSelfSpread for speeds: a speed must be within 5 to 10 % of its limit, CPU time within 50 %.
inline constexpr double kCpuSelfSpread = 0.10;

// CPU seconds of one activity, one sample per pair.
class CpuMeter {
 public:
  // Runs `work` and records by how much `clock` advanced.
  template <typename Clock, typename Work>
  auto meter(Clock clock, Work work) -> decltype(work()) {
    CKPT_ASSIGN(const double before, clock());
    auto result = work();
    CKPT_ASSIGN(const double after, clock());
    samples_.push_back(after - before);
    return result;
  }
  std::vector<double> per_gb(uint64_t sample_bytes) const;

 private:
  std::vector<double> samples_;
};

// CPU seconds per GB. Value i of each vector belongs to pair i.
struct CpuPairs {
  std::vector<double> loop;
  std::vector<double> crc;
  std::vector<double> engine;
};
// {ratio, ratio_interval, limit_self_ratio, limit_self_interval, pass_ratio, verdict,
// seconds_per_gb, limit_seconds_per_gb, crc_seconds_per_gb, runs:[{limit, crc, value, ratio}]}:
// ratio is the median of engine / (loop + CRC), ratio_to_limit_and_crc its earlier name; seconds
// are medians.
nlohmann::json cpu_json(const CpuPairs& cpu);
// Two lines of text for the terminal.
std::string cpu_text(const nlohmann::json& cpu);

}  // namespace bench
