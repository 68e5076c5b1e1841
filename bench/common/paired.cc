#include "bench/common/paired.h"

#include <algorithm>
#include <chrono>
#include <random>

namespace bench {

namespace {

std::vector<double> self_ratios(const std::vector<double>& limit) {
  std::vector<double> ratios;
  ratios.reserve(limit.size());
  for (size_t i = 1; i < limit.size(); ++i) ratios.push_back(limit[i] / limit[i - 1]);
  return ratios;
}

bool within(const Interval& interval, double spread) {
  return interval.low >= 1 - spread && interval.high <= 1 + spread;
}

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string number_of(size_t pair, const Pairs& pairs) {
  const auto at_least = static_cast<size_t>(pairs.at_least);
  return pair <= at_least ? fmt::format("pair {}/{}", pair, at_least)
                          : fmt::format("pair {}, added, of at most {}", pair, pairs.at_most);
}

}  // namespace

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

bool Paired::conclusive(double self_spread) const { return within(self_interval, self_spread); }

const char* verdict(const Paired& paired, double pass_ratio, bool more_is_better,
                    double self_spread) {
  const auto [low, high] = paired.ratio_interval;
  const bool above = low >= pass_ratio;
  const bool below = high <= pass_ratio;
  if (!paired.conclusive(self_spread) || (!above && !below)) return "inconclusive";
  return above == more_is_better ? "pass" : "fail";
}

Paired compared(std::vector<double> limit, std::vector<double> engine) {
  CKPT_ASSERT(limit.size() >= 2 && limit.size() == engine.size());
  Paired paired;
  paired.limit = std::move(limit);
  paired.engine = std::move(engine);
  std::vector<double> ratios;
  ratios.reserve(paired.limit.size());
  for (size_t i = 0; i < paired.limit.size(); ++i) {
    ratios.push_back(paired.engine[i] / paired.limit[i]);
  }
  const std::vector<double> of_limit = self_ratios(paired.limit);
  paired.ratio = median(ratios);
  paired.ratio_interval = median_interval(ratios);
  paired.self_ratio = median(of_limit);
  paired.self_interval = median_interval(of_limit);
  return paired;
}

bool wants_another(const Pairs& pairs, const std::vector<double>& limit, double seconds) {
  const int made = static_cast<int>(limit.size());
  if (made < pairs.at_least) return true;
  if (made >= pairs.at_most) return false;
  if (made > pairs.at_least && made % 2 == 1) return true;  // the second of two
  if (seconds >= pairs.seconds_more) return false;
  return !within(median_interval(self_ratios(limit)), kSelfSpread);
}

bool begins_round(int round, double seconds_left, double longest_seconds) {
  return round < 2 || seconds_left >= longest_seconds;
}

Result<Paired> measure_pairs(const Pairs& pairs, const Contest& contest) {
  CKPT_ASSERT(pairs.at_least >= 2);
  const auto now = contest.seconds ? contest.seconds : steady_seconds;
  const auto at_least = static_cast<size_t>(pairs.at_least);
  std::vector<double> limit;
  std::vector<double> engine;
  double enough_at = 0;
  const auto seconds_more = [&] { return limit.size() < at_least ? 0 : now() - enough_at; };
  while (wants_another(pairs, limit, seconds_more())) {
    CKPT_TRY(contest.prepare());
    const bool limit_first = limit.size() % 2 == 0;
    for (const bool is_limit : {limit_first, !limit_first}) {
      CKPT_ASSIGN(const double value, is_limit ? contest.limit() : contest.engine());
      (is_limit ? limit : engine).push_back(value);
    }
    if (limit.size() == at_least) enough_at = now();
    contest.progress(fmt::format("{}: limit {:.4g} engine {:.4g} ratio {:.3f}",
                                 number_of(limit.size(), pairs), limit.back(), engine.back(),
                                 engine.back() / limit.back()));
  }
  const double seconds_added = seconds_more();
  Paired paired = compared(std::move(limit), std::move(engine));
  paired.pairs_added = static_cast<int>(paired.limit.size() - at_least);
  paired.seconds_added = paired.pairs_added == 0 ? 0 : seconds_added;
  return paired;
}

}  // namespace bench
