#include "bench/paired.h"

#include <algorithm>
#include <random>

namespace bench {

double median(std::vector<double> values) {
  CKPT_ASSERT(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Interval median_interval(const std::vector<double>& values) {
  constexpr size_t kResamples = 4000;
  std::mt19937_64 random(1);
  std::uniform_int_distribution<size_t> pick(0, values.size() - 1);
  std::vector<double> medians;
  std::vector<double> sample(values.size());
  for (size_t i = 0; i < kResamples; ++i) {
    for (double& value : sample) value = values[pick(random)];
    medians.push_back(median(sample));
  }
  std::sort(medians.begin(), medians.end());
  return {.low = medians[kResamples * 25 / 1000], .high = medians[kResamples * 975 / 1000 - 1]};
}

bool Paired::conclusive() const {
  constexpr double kSpread = 0.03;
  return self_interval.low >= 1 - kSpread && self_interval.high <= 1 + kSpread;
}

const char* verdict(const Paired& paired, double pass_ratio, bool more_is_better) {
  const auto [low, high] = paired.ratio_interval;
  const bool above = low >= pass_ratio;
  const bool below = high <= pass_ratio;
  if (!paired.conclusive() || (!above && !below)) return "inconclusive";
  return above == more_is_better ? "pass" : "fail";
}

Paired compared(std::vector<double> limit, std::vector<double> engine) {
  CKPT_ASSERT(limit.size() >= 2 && limit.size() == engine.size());
  Paired paired;
  paired.limit = std::move(limit);
  paired.engine = std::move(engine);
  std::vector<double> ratios;
  std::vector<double> self_ratios;
  for (size_t i = 0; i < paired.limit.size(); ++i) {
    ratios.push_back(paired.engine[i] / paired.limit[i]);
    if (i > 0) self_ratios.push_back(paired.limit[i] / paired.limit[i - 1]);
  }
  paired.ratio = median(ratios);
  paired.ratio_interval = median_interval(ratios);
  paired.self_ratio = median(self_ratios);
  paired.self_interval = median_interval(self_ratios);
  return paired;
}

Result<Paired> measure_pairs(int pairs, const Contest& contest) {
  CKPT_ASSERT(pairs >= 2);
  Paired paired;
  for (int i = 0; i < pairs; ++i) {
    CKPT_TRY(contest.prepare());
    const bool limit_first = i % 2 == 0;
    for (const bool is_limit : {limit_first, !limit_first}) {
      CKPT_ASSIGN(const double value, is_limit ? contest.limit() : contest.engine());
      (is_limit ? paired.limit : paired.engine).push_back(value);
    }
    contest.progress(fmt::format("pair {}/{}: limit {:.4g} engine {:.4g} ratio {:.3f}", i + 1,
                                 pairs, paired.limit.back(), paired.engine.back(),
                                 paired.engine.back() / paired.limit.back()));
  }
  return compared(std::move(paired.limit), std::move(paired.engine));
}

}  // namespace bench
