// Paired measurement: two things are timed in turns (A B B A A B B A ...), so that a machine that
// is slow for a while is slow for both, and compared by the median of their ratios.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "formats/base/result.h"

namespace bench {

using ckpt::Result;

struct Interval {
  double low = 0;
  double high = 0;
};

double median(std::vector<double> values);
// 95 % interval of the median, by a seeded bootstrap.
Interval median_interval(const std::vector<double>& values);

// How many pairs a bench makes: `at_least`, and then more while the limit against itself says that
// nothing was measured, whatever the ratio is.
struct Pairs {
  int at_least = 12;
  int at_most = 100;          // of all; a smaller number than at_least adds none
  double seconds_more = 300;  // begin no further pairs so long after at_least were there
};
constexpr Pairs exactly(int pairs) { return {pairs, pairs, 0}; }

// The spread of the limit against itself within which something was measured.
inline constexpr double kSelfSpread = 0.03;

struct Paired {
  std::vector<double> limit;   // of run i, in the unit of the callbacks (more is better)
  std::vector<double> engine;  // of run i
  double ratio = 0;            // median of engine[i] / limit[i]
  Interval ratio_interval;
  double self_ratio = 0;  // median of limit[i + 1] / limit[i]: 1 on a quiet machine
  Interval self_interval;
  int pairs_added = 0;       // beyond Pairs::at_least
  double seconds_added = 0;  // that these took
  // The limit against itself holds within 3 %: otherwise nothing was measured.
  bool conclusive(double self_spread = kSelfSpread) const;
};
// "pass" if the whole interval of the ratio is at or above pass_ratio (at or below, where less is
// better), "fail" if it is on the other side, "inconclusive" if it is on neither or nothing was
// measured.
const char* verdict(const Paired& paired, double pass_ratio, bool more_is_better = true,
                    double self_spread = kSelfSpread);

// The same from values of runs that were made in turns; value i of each belongs together.
Paired compared(std::vector<double> limit, std::vector<double> engine);

// Whether one more pair is made after those of `limit`, `seconds` after the at_least-th. It knows
// of the limit's runs only, so that no ratio can be waited for. Beyond at_least they come two at a
// time, one in either order.
bool wants_another(const Pairs& pairs, const std::vector<double>& limit, double seconds);

// Whether a bench that takes turns between runs begins round `round` (from 0): it must end within
// the seconds that are left if it takes as long as the longest so far. The first two always run, as
// there is nothing to compare before.
bool begins_round(int round, double seconds_left, double longest_seconds);

// What is measured. `prepare` runs before each pair, outside of both times.
struct Contest {
  std::function<ckpt::Status()> prepare;
  std::function<Result<double>()> limit;
  std::function<Result<double>()> engine;
  std::function<void(const std::string&)> progress;
  std::function<double()> seconds = {};  // a clock; a steady one if there is none
};
// Runs both as often as `pairs` says, in the order A B B A. Stops at the first error.
Result<Paired> measure_pairs(const Pairs& pairs, const Contest& contest);

}  // namespace bench
