// Ticks: round numbers for the axis of a chart.
#pragma once

#include <string>
#include <vector>

namespace moetrain::report {

struct Ticks {
  std::vector<double> values;  // ascending, multiples of step
  double step = 1;             // 1, 2 or 5 times a power of ten
  int decimals = 0;            // digits after the point that tell all values apart
};

// About `wanted` (>= 2) ticks inside [low, high]. An empty or inverted range gives one around low.
Ticks make_ticks(double low, double high, int wanted);

// With exactly ticks.decimals digits.
std::string tick_label(const Ticks& ticks, double value);

}  // namespace moetrain::report
