#include "bench/service/cpu_pairs.h"

#include <fmt/format.h>

namespace bench {

std::vector<double> CpuMeter::per_gb(uint64_t sample_bytes) const {
  std::vector<double> seconds = samples_;
  for (double& each : seconds) each /= static_cast<double>(sample_bytes) / 1e9;
  return seconds;
}

nlohmann::json cpu_json(const CpuPairs& cpu) {
  CKPT_ASSERT(cpu.loop.size() == cpu.crc.size() && cpu.loop.size() == cpu.engine.size());
  std::vector<double> limit = cpu.loop;
  for (size_t i = 0; i < limit.size(); ++i) limit[i] += cpu.crc[i];
  const Paired paired = compared(limit, cpu.engine);
  nlohmann::json runs = nlohmann::json::array();
  for (size_t i = 0; i < limit.size(); ++i) {
    runs.push_back({{"limit", cpu.loop[i]},
                    {"crc", cpu.crc[i]},
                    {"value", cpu.engine[i]},
                    {"ratio", cpu.engine[i] / limit[i]}});
  }
  return {{"seconds_per_gb", median(cpu.engine)},
          {"limit_seconds_per_gb", median(cpu.loop)},
          {"crc_seconds_per_gb", median(cpu.crc)},
          {"ratio", paired.ratio},
          {"ratio_to_limit_and_crc", paired.ratio},
          {"ratio_interval", {paired.ratio_interval.low, paired.ratio_interval.high}},
          {"limit_self_ratio", paired.self_ratio},
          {"limit_self_interval", {paired.self_interval.low, paired.self_interval.high}},
          {"pass_ratio", kCpuPassRatio},
          {"verdict", verdict(paired, kCpuPassRatio, /*more_is_better=*/false, kCpuSelfSpread)},
          {"runs", runs}};
}

std::string cpu_text(const nlohmann::json& cpu) {
  const auto number = [&](const char* name) { return cpu.at(name).get<double>(); };
  const auto bound = [&](const char* name, int i) { return cpu.at(name)[i].get<double>(); };
  return fmt::format(
      "CPU: {:.4f} s/GB against {:.4f} of the raw loop and {:.4f} of a CRC pass\n"
      "ratio {:.3f} [{:.3f}, {:.3f}], these against themselves {:.3f} [{:.3f}, {:.3f}]: {}\n",
      number("seconds_per_gb"), number("limit_seconds_per_gb"), number("crc_seconds_per_gb"),
      number("ratio"), bound("ratio_interval", 0), bound("ratio_interval", 1),
      number("limit_self_ratio"), bound("limit_self_interval", 0), bound("limit_self_interval", 1),
      cpu.at("verdict").get<std::string>());
}

}  // namespace bench
