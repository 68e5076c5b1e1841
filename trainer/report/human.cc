// Sizes and times as people read them.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "trainer/report/render.h"

namespace moetrain::report {

std::string human_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 and above would print as "1024.0": the next unit says it shorter.
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 99.95 ? 1 : 0, kUnits[unit]);
}

std::string human_ms(double milliseconds) {
  if (milliseconds < 9.995) return fmt::format("{:.1f} ms", milliseconds);
  if (milliseconds < 999.5) return fmt::format("{:.0f} ms", milliseconds);
  if (milliseconds < 59'950) return fmt::format("{:.1f} s", milliseconds / 1000);
  const auto seconds = static_cast<long long>(std::llround(milliseconds / 1000));
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
}

}  // namespace moetrain::report
