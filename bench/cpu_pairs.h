// What a save takes of the processor, pair by pair, against what the limit's own loop and one pass
// of CRC32C over as many bytes take beside it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/paired.h"

namespace bench {

// What the design asks for.
inline constexpr double kCpuPassRatio = 1.5;
// Where the loop and the CRC pass differ more than that from pair to pair, nothing was measured. It
// is wider than that of speeds: their bounds are within 5 to 10 % of the limit, this one is not.
inline constexpr double kCpuSelfSpread = 0.10;

// CPU seconds of one thing, a sample for each pair.
class CpuMeter {
 public:
  // Runs `work` and counts what `clock` has gone on by meanwhile.
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

// CPU seconds per GB; value i of each belongs to pair i.
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
// Two lines for people.
std::string cpu_text(const nlohmann::json& cpu);

}  // namespace bench
