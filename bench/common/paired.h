// Paired measurement: two things are timed in turns (A B B A A B B A ...) and compared by the
// median of their ratios, so that a machine that is slow for a while slows both.
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

// Number of pairs a bench makes: `at_least`, then more while the comparison of the limit with
// itself is inconclusive. The ratio itself has no influence.
struct Pairs {
  int at_least = 12;
  int at_most = 100;          // total; adds no pairs if it is below at_least
  double seconds_more = 300;  // time limit for starting pairs beyond at_least
};
constexpr Pairs exactly(int pairs) { return {pairs, pairs, 0}; }

// Largest spread of the limit against itself for a conclusive measurement.
inline constexpr double kSelfSpread = 0.03;

struct Paired {
  std::vector<double> limit;   // result of run i, in the unit of the callbacks (more is better)
  std::vector<double> engine;  // result of run i
  double ratio = 0;            // median of engine[i] / limit[i]
  Interval ratio_interval;
  double self_ratio = 0;  // median of limit[i + 1] / limit[i]: 1 on a quiet machine
  Interval self_interval;
  int pairs_added = 0;       // beyond Pairs::at_least
  double seconds_added = 0;  // duration of the added pairs
  // True if the spread of the limit against itself is within `self_spread`.
  bool conclusive(double self_spread = kSelfSpread) const;
};
// "pass" if the whole interval of the ratio is at or above pass_ratio (at or below, where less is
// better), "fail" if the whole interval is on the other side, "inconclusive" otherwise or if the
// measurement is not conclusive().
const char* verdict(const Paired& paired, double pass_ratio, bool more_is_better = true,
                    double self_spread = kSelfSpread);

// Compares values of runs that were made in turns. limit[i] and engine[i] form pair i.
Paired compared(std::vector<double> limit, std::vector<double> engine);

// True if another pair follows those of `limit`, `seconds` after pair number at_least. Looks at the
// limit's runs only, so that a bench cannot wait for a better ratio. Beyond at_least, pairs come in
// twos, one in either order.
bool wants_another(const Pairs& pairs, const std::vector<double>& limit, double seconds);

// True if a bench that alternates between runs may begin round `round` (from 0). The round must fit
// into the remaining seconds if it takes as long as the longest so far. The first two rounds always
// run: a comparison needs both.
bool begins_round(int round, double seconds_left, double longest_seconds);

// The two runs to compare. `prepare` runs before each pair and is not timed.
struct Contest {
  std::function<ckpt::Status()> prepare;
  std::function<Result<double>()> limit;
  std::function<Result<double>()> engine;
  std::function<void(const std::string&)> progress;
  std::function<double()> seconds = {};  // a clock; default: a steady clock
};
// Runs both as often as `pairs` says, in the order A B B A. Stops at the first error.
Result<Paired> measure_pairs(const Pairs& pairs, const Contest& contest);

}  // namespace bench
