// Paired measurement and its verdict.
#include "bench/common/paired.h"

#include <gtest/gtest.h>

#include <functional>

#include "bench/common/report.h"

namespace bench {
namespace {

// A contest with given values that records the order of the calls.
struct Given {
  std::vector<double> limit;
  std::vector<double> engine;
  std::string order;

  Paired measure() {
    size_t a = 0;
    size_t b = 0;
    const auto next = [this](char side, const std::vector<double>& values, size_t& at) {
      order += side;
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
    return measure_pairs(exactly(12), contest).value();
  }
};

// Result of measure_pairs() with given values and a clock that advances one second per pair.
struct Made {
  size_t pairs = 0;
  int added = 0;
  double seconds = 0;
};
Made made_by(const Pairs& pairs, const std::function<double(size_t)>& limit,
             const std::function<double(size_t)>& engine) {
  size_t a = 0;
  size_t b = 0;
  double now = 1000;
  Contest contest;
  contest.prepare = [&] {
    now += 1;
    return ckpt::Status();
  };
  contest.limit = [&] { return Result<double>(limit(a++)); };
  contest.engine = [&] { return Result<double>(engine(b++)); };
  contest.progress = [](const std::string&) {};
  contest.seconds = [&] { return now; };
  const Paired paired = measure_pairs(pairs, contest).value();
  EXPECT_EQ(paired.engine.size(), paired.limit.size());
  return {paired.limit.size(), paired.pairs_added, paired.seconds_added};
}

double steady(size_t) { return 100; }
double noisy(size_t i) { return i % 2 == 0 ? 100 : 200; }

std::string verdict_of(Given given, double pass_ratio, bool more_is_better) {
  const Outcome outcome{.bench = "x",
                        .shape = {},
                        .unit = "bytes/s",
                        .limit_name = "y",
                        .pass_ratio = pass_ratio,
                        .more_is_better = more_is_better};
  return to_json(outcome, given.measure(), {})["verdict"];
}

TEST(Paired, AlternatesOrderAndPreparesBeforeEachPair) {
  Given given{{1}, {1}, {}};
  given.measure();
  EXPECT_EQ(given.order.substr(0, 12), ".AB.BA.AB.BA");
}

TEST(Paired, RatioIsMedianOfPairedRatios) {
  // The machine is twice as fast in every other pair; the engine is always at 0.9 of it.
  Given given{{100, 200}, {90, 180}, {}};
  const Paired paired = given.measure();
  EXPECT_DOUBLE_EQ(paired.ratio, 0.9);
  EXPECT_DOUBLE_EQ(paired.ratio_interval.low, 0.9);
  EXPECT_DOUBLE_EQ(paired.ratio_interval.high, 0.9);
  EXPECT_FALSE(paired.conclusive());  // a machine that varies so much proves nothing
}

TEST(MorePairs, SteadyLimitAddsNone) {
  const Pairs pairs{.at_least = 12, .at_most = 40, .seconds_more = 1000};
  const Made quiet = made_by(pairs, steady, steady);
  EXPECT_EQ(quiet.pairs, 12u);
  EXPECT_EQ(quiet.added, 0);
  EXPECT_EQ(quiet.seconds, 0);
  // The ratio has no influence: neither if it is always bad nor if it is on both sides of a bound.
  EXPECT_EQ(made_by(pairs, steady, [](size_t) { return 1.0; }).pairs, 12u);
  EXPECT_EQ(made_by(pairs, steady, noisy).pairs, 12u);
}

TEST(MorePairs, NoisyLimitAddsPairsWhateverRatio) {
  const Pairs pairs{.at_least = 12, .at_most = 400, .seconds_more = 1000};
  const auto calm_later = [](size_t i) { return i < 12 ? noisy(i) : 100; };
  const Made made = made_by(pairs, calm_later, calm_later);
  EXPECT_GT(made.pairs, 20u);  // about half of the pairs have to be calm
  EXPECT_LT(made.pairs, 100u);
  EXPECT_EQ(made.pairs % 2, 0u);
  EXPECT_EQ(made.added, static_cast<int>(made.pairs) - 12);
  EXPECT_EQ(made.seconds, made.added);
  for (const double engine : {1.0, 95.0, 1000.0}) {
    EXPECT_EQ(made_by(pairs, calm_later, [&](size_t) { return engine; }).pairs, made.pairs);
  }
  EXPECT_EQ(made_by(pairs, calm_later, noisy).pairs, made.pairs);
}

TEST(MorePairs, StopAtMaximumOrTimeLimit) {
  EXPECT_EQ(made_by({12, 20, 1000}, noisy, steady).pairs, 20u);
  EXPECT_EQ(made_by({12, 12, 1000}, noisy, steady).pairs, 12u);
  EXPECT_EQ(made_by({12, 11, 1000}, noisy, steady).pairs, 12u);
  EXPECT_EQ(made_by(exactly(12), noisy, steady).pairs, 12u);
  // Begun within five seconds, in twos: as many pairs in one order as in the other.
  EXPECT_EQ(made_by({12, 400, 5}, noisy, steady).pairs, 18u);
  EXPECT_EQ(made_by({12, 400, 0}, noisy, steady).pairs, 12u);
  EXPECT_EQ(made_by({11, 400, 2}, noisy, steady).pairs, 14u);
}

// The decision depends on the limit's values only, never on the engine's.
TEST(MorePairs, RuleDependsOnLimitOnly) {
  const Pairs pairs{.at_least = 2, .at_most = 8, .seconds_more = 10};
  EXPECT_TRUE(wants_another(pairs, {}, 99));
  EXPECT_TRUE(wants_another(pairs, {1}, 99));
  EXPECT_FALSE(wants_another(pairs, {1, 1}, 0));
  EXPECT_TRUE(wants_another(pairs, {1, 2}, 9));
  EXPECT_FALSE(wants_another(pairs, {1, 2}, 10));
  EXPECT_TRUE(wants_another(pairs, {1, 2, 2}, 10));
  EXPECT_FALSE(wants_another(pairs, {1, 2, 1, 2, 1, 2, 1, 2}, 0));
  EXPECT_TRUE(wants_another(pairs, {1, 1.031}, 0));
  EXPECT_FALSE(wants_another(pairs, {1, 1.029}, 0));
}

TEST(Rounds, BeginOnlyIfLongestFitsRemainingTime) {
  EXPECT_TRUE(begins_round(0, -1, 0));
  EXPECT_TRUE(begins_round(1, -1, 50)) << "one round alone says nothing";
  EXPECT_TRUE(begins_round(2, 60, 50));
  EXPECT_FALSE(begins_round(2, 40, 50));
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
