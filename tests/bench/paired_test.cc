// The paired measurement and the verdict made of it.
#include "bench/paired.h"

#include <gtest/gtest.h>

#include "bench/report.h"

namespace bench {
namespace {

// A contest whose values are given, and which writes down who was asked when.
struct Given {
  std::vector<double> limit;
  std::vector<double> engine;
  std::string order;

  Paired measure() {
    size_t a = 0;
    size_t b = 0;
    const auto next = [this](char who, const std::vector<double>& values, size_t& at) {
      order += who;
      return Result<double>(values[at++ % values.size()]);
    };
    Contest contest;
    contest.prepare = [this] {
      order += '.';
      return ckpt::Status();
    };
    contest.limit = [&] { return next('A', limit, a); };
    contest.engine = [&] { return next('B', engine, b); };
    contest.progress = [](const std::string&) {};
    return measure_pairs(12, contest).value();
  }
};

std::string verdict_of(Given given, double pass_ratio, bool more_is_better) {
  const Outcome outcome{.bench = "x",
                        .shape = {},
                        .unit = "bytes/s",
                        .limit_name = "y",
                        .pass_ratio = pass_ratio,
                        .more_is_better = more_is_better};
  return to_json(outcome, given.measure(), {})["verdict"];
}

TEST(Paired, TakesTurnsAndPreparesOutsideOfBoth) {
  Given given{{1}, {1}, {}};
  given.measure();
  EXPECT_EQ(given.order.substr(0, 12), ".AB.BA.AB.BA");
}

TEST(Paired, MedianOfPairedRatiosIsNotTheRatioOfMedians) {
  // The machine is twice as fast in every other pair; the engine is always at 0.9 of it.
  Given given{{100, 200}, {90, 180}, {}};
  const Paired paired = given.measure();
  EXPECT_DOUBLE_EQ(paired.ratio, 0.9);
  EXPECT_DOUBLE_EQ(paired.ratio_interval.low, 0.9);
  EXPECT_DOUBLE_EQ(paired.ratio_interval.high, 0.9);
  EXPECT_FALSE(paired.conclusive());  // such a machine proves nothing
}

TEST(Paired, MedianTakesTheMiddle) {
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({4, 1, 2, 3}), 2.5);
}

TEST(Verdict, NeedsTheWholeIntervalOnOneSide) {
  EXPECT_EQ(verdict_of({{100}, {95}, {}}, 0.8, true), "pass");
  EXPECT_EQ(verdict_of({{100}, {70}, {}}, 0.8, true), "fail");
  EXPECT_EQ(verdict_of({{100}, {110}, {}}, 1.25, false), "pass");
  EXPECT_EQ(verdict_of({{100}, {130}, {}}, 1.25, false), "fail");
  // Ratios of 0.7 and 0.9 around a bound of 0.8, on a machine that is perfectly quiet.
  EXPECT_EQ(verdict_of({{100}, {70, 90}, {}}, 0.8, true), "inconclusive");
  EXPECT_EQ(verdict_of({{100, 150}, {95, 140}, {}}, 0.8, true), "inconclusive");
}

}  // namespace
}  // namespace bench
