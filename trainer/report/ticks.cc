#include "trainer/report/ticks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace moetrain::report {
namespace {

// The one of 1, 2, 5, 10 x 10^n that is nearest to `raw`, by ratio.
double round_step(double raw) {
  const double magnitude = std::pow(10.0, std::floor(std::log10(raw)));
  const double lead = raw / magnitude;  // [1, 10)
  if (lead < std::sqrt(1.0 * 2.0)) return magnitude;
  if (lead < std::sqrt(2.0 * 5.0)) return 2 * magnitude;
  if (lead < std::sqrt(5.0 * 10.0)) return 5 * magnitude;
  return 10 * magnitude;
}

}  // namespace

Ticks make_ticks(double low, double high, int wanted) {
  if (!(high > low)) {
    const double around = std::max(std::abs(low) * 0.05, 0.5);
    high = low + around;
    low -= around;
  }
  Ticks ticks;
  ticks.step = round_step((high - low) / std::max(wanted - 1, 1));
  ticks.decimals = std::max(0, static_cast<int>(-std::floor(std::log10(ticks.step) + 1e-9)));
  // Multiples are counted, not summed: 0.1 * 3 is exact where 0.1 + 0.1 + 0.1 is not.
  const double first = std::ceil(low / ticks.step - 1e-9);
  const double last = std::floor(high / ticks.step + 1e-9);
  const int count = static_cast<int>(last - first) + 1;
  for (int i = 0; i < count; ++i) {
    const double index = first + i;
    ticks.values.push_back(index == 0 ? 0.0 : index * ticks.step);  // never -0
  }
  return ticks;
}

std::string tick_label(const Ticks& ticks, double value) {
  return fmt::format("{:.{}f}", value, ticks.decimals);
}

}  // namespace moetrain::report
