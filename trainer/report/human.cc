// Times as people read them; sizes are base::format_size.
#include <fmt/format.h>

#include <cmath>

#include "trainer/report/render.h"

namespace moetrain::report {

std::string human_ms(double milliseconds) {
  if (milliseconds < 9.995) return fmt::format("{:.1f} ms", milliseconds);
  if (milliseconds < 999.5) return fmt::format("{:.0f} ms", milliseconds);
  if (milliseconds < 59'950) return fmt::format("{:.1f} s", milliseconds / 1000);
  const auto seconds = static_cast<long long>(std::llround(milliseconds / 1000));
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
}

}  // namespace moetrain::report
