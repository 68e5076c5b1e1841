// Intervals and K from measured times: closed forms, bounds, and whether the result is optimal.
#include "trainer/partial/auto_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace moetrain {
namespace {

using testing::HasSubstr;

// 100 MB of dense state, 16 experts of 50 MB each; a step takes 100 ms.
MeasuredCosts costs() {
  MeasuredCosts costs;
  costs.step_s = 0.1;
  costs.stall_s_per_byte = 1e-10;   // 10 GB/s
  costs.durable_s_per_byte = 1e-9;  // 1 GB/s
  costs.dense_bytes = 100'000'000;
  costs.expert_bytes = 50'000'000;
  costs.experts = 16;
  costs.failures = {.failures = 4, .seconds = 9'000};
  return costs;
}

TEST(FailureRateTest, IncludesPriorOfHalfFailure) {
  EXPECT_DOUBLE_EQ(mean_time_between_failures_s({.failures = 0, .seconds = 100}), 200)
      << "half a failure before any was seen";
  EXPECT_DOUBLE_EQ(mean_time_between_failures_s({.failures = 9, .seconds = 950}), 100);
  EXPECT_EQ(mean_time_between_failures_s({}), 0);
  // With many failures the prior does not matter.
  EXPECT_NEAR(mean_time_between_failures_s({.failures = 10'000, .seconds = 1e6}), 100, 0.01);
}

TEST(IntervalTest, ClosedForms) {
  EXPECT_DOUBLE_EQ(young_interval_s(2, 100), 20);
  EXPECT_EQ(young_interval_s(0, 100), 0);
  // x = sqrt(2 / 200) = 0.1: 20 (1 + 0.1/3 + 0.01/9) - 2.
  EXPECT_NEAR(daly_interval_s(2, 100), 20 * (1 + 0.1 / 3 + 0.01 / 9) - 2, 1e-12);
  EXPECT_EQ(daly_interval_s(200, 100), 100) << "a copy as long as this is never worth it";
  EXPECT_EQ(daly_interval_s(0, 100), 0);
  EXPECT_EQ(daly_interval_s(0, 0), 0);
  // The higher order vanishes as the cost goes to 0.
  EXPECT_NEAR(daly_interval_s(1e-6, 100) / young_interval_s(1e-6, 100), 1, 1e-4);
}

TEST(IntervalTest, GrowsWithCostAndTimeBetweenFailures) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> log_of(-6, 6);
  for (int i = 0; i < 10'000; ++i) {
    const double mtbf = std::exp(log_of(random));
    const double cost = mtbf * std::exp(log_of(random) - 7);  // below 2 M / e
    const double here = daly_interval_s(cost, mtbf);
    EXPECT_GT(here, 0);
    EXPECT_LE(here, young_interval_s(cost, mtbf));
    EXPECT_GE(daly_interval_s(cost * 1.1, mtbf), here);
    EXPECT_GE(daly_interval_s(cost, mtbf * 1.1), here);
  }
}

// Simulates `work` seconds of work with a copy after each `interval`. Failures come at exponential
// times, also during copies and restores. Returns the total time.
double simulate(double work, double interval, double cost, double restore, double mtbf,
                std::mt19937_64& random) {
  std::exponential_distribution<double> until_failure(1 / mtbf);
  double time = 0;
  double done = 0;
  double left = until_failure(random);
  while (done < work) {
    const double segment = interval + cost;
    if (left >= segment) {
      left -= segment;
      time += segment;
      done += interval;
      continue;
    }
    time += left;
    left = until_failure(random);
    while (left < restore) {
      time += left;
      left = until_failure(random);
    }
    time += restore;
    left -= restore;
  }
  return time;
}

TEST(IntervalTest, NoOtherIntervalLosesLessTime) {
  struct Case {
    double cost, restore, mtbf;
  };
  for (const Case& c : {Case{1, 2, 200}, Case{5, 10, 100}, Case{0.1, 30, 1'000}}) {
    const auto lost_with = [&](double interval) {
      std::mt19937_64 random(42);  // the same failures for all intervals
      const double work = 3'000 * c.mtbf;
      return simulate(work, interval, c.cost, c.restore, c.mtbf, random) / work - 1;
    };
    const double best = daly_interval_s(c.cost, c.mtbf);
    const double lost = lost_with(best);
    for (const double factor : {0.25, 0.5, 0.7, 0.85, 1.15, 1.4, 2.0, 4.0}) {
      // The factors allow for the noise of 3,000 failures.
      EXPECT_GT(lost_with(best * factor), lost * (factor < 0.6 || factor > 1.7 ? 1.02 : 0.97))
          << "cost " << c.cost << ", " << factor << " times " << best;
    }
  }
}

TEST(AutoConfigTest, LargestHiddenKFitsPartOfStep) {
  AutoLimits limits;
  limits.copy_part_max = 0.5;  // 50 ms: 500 MB, including 400 MB of experts
  EXPECT_EQ(largest_hidden_k(costs(), limits), 8u);
  limits.copy_part_max = 1;
  EXPECT_EQ(largest_hidden_k(costs(), limits), 16u) << "not more than there are";
  limits.copy_part_max = 0;
  EXPECT_EQ(largest_hidden_k(costs(), limits), 1u) << "never none";
}

TEST(AutoConfigTest, SustainableIntervalCoversWriteTime) {
  const MeasuredCosts measured = costs();  // 900 MB with all experts: 0.9 s, 9 steps
  EXPECT_EQ(sustainable_steps(measured, 16, {}), 9u);
  EXPECT_EQ(sustainable_steps(measured, 1, {}), 2u);
  MeasuredCosts slow = measured;
  slow.durable_s_per_byte = 1e9;
  EXPECT_EQ(sustainable_steps(slow, 16, {}), AutoLimits{}.steps_max) << "bounded, not wrapped";
}

TEST(AutoConfigTest, ChoosesWithinItsBounds) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> log_of(-8, 8);
  for (int i = 0; i < 20'000; ++i) {
    MeasuredCosts any = costs();
    any.step_s *= std::exp(log_of(random));
    any.stall_s_per_byte *= std::exp(log_of(random));
    any.durable_s_per_byte *= std::exp(log_of(random));
    any.failures = {random() % 10, std::exp(log_of(random))};
    any.experts = 1 + random() % 64;
    AutoRequest request;
    request.k_min = 1 + random() % any.experts;
    const AutoLimits limits;
    const AutoChoice choice = choose(any, request, limits);
    EXPECT_GE(choice.every, choice.sustainable);
    EXPECT_LE(choice.every, limits.steps_max);
    EXPECT_GE(choice.k_persist, request.k_min);
    EXPECT_GE(choice.k_hidden, choice.k_persist);
    EXPECT_LE(choice.k_hidden, any.experts);
    EXPECT_EQ(choice.k_snapshot, choice.k_persist) << "nothing is kept in memory alone";
    const double interval_s = static_cast<double>(choice.every) * any.step_s;
    if (choice.every > choice.sustainable) {
      EXPECT_LE(interval_s, limits.interval_max_s + any.step_s);
    }
    EXPECT_GE(choice.lost_part, 0);
    EXPECT_LE(choice.lost_part, 1);
    // With one more expert the copy would not hide, or storage would not keep up.
    if (choice.k_persist < choice.k_hidden) {
      AutoRequest more = request;
      more.k = choice.k_persist + 1;
      const AutoChoice larger = choose(any, more, limits);
      EXPECT_GT(static_cast<double>(larger.sustainable) * any.step_s,
                std::max(any.step_s, larger.best_s));
    }
  }
}

TEST(AutoConfigTest, MemoryExpertsCostCopiesButNoWrites) {
  const MeasuredCosts measured = costs();
  AutoRequest request{.k = 1, .memory = true};
  const AutoChoice alone = choose(measured, {.k = 1}, {});
  const AutoChoice hidden = choose(measured, request, {});
  EXPECT_EQ(hidden.k_persist, 1u);
  EXPECT_EQ(hidden.k_snapshot, hidden.k_hidden);
  EXPECT_GT(hidden.k_snapshot, 1u);
  EXPECT_EQ(hidden.sustainable, alone.sustainable);
  EXPECT_GT(hidden.best_s, alone.best_s) << "a copy that takes longer is made less often";
  request.k_snapshot = 3;
  EXPECT_EQ(choose(measured, request, {}).k_snapshot, 3u) << "as asked for";
  request.k_snapshot = 1;
  request.k = 5;
  EXPECT_EQ(choose(measured, request, {}).k_snapshot, 5u) << "not fewer than are written";
}

TEST(AutoConfigTest, KeepsRequestedValues) {
  const AutoChoice fixed = choose(costs(), {.every = 3, .k = 5}, {});
  EXPECT_EQ(fixed.every, 3u);
  EXPECT_EQ(fixed.k_persist, 5u);
  // Every 3 steps is 0.3 s: 300 MB, which is four experts plus the dense state.
  EXPECT_EQ(choose(costs(), {.every = 3}, {.copy_part_max = 1}).k_persist, 4u);
  EXPECT_EQ(choose(costs(), {.every = 3, .k_min = 6}, {.copy_part_max = 1}).k_persist, 6u);
}

TEST(AutoConfigTest, RareFailuresAndSlowDisksMeanLongIntervals) {
  const auto every = [](const MeasuredCosts& measured) {
    return choose(measured, {.k = 16}, {}).every;
  };
  const uint64_t usual = every(costs());
  MeasuredCosts rare = costs();
  rare.failures.failures = 0;
  EXPECT_GT(every(rare), usual);
  MeasuredCosts slow = costs();
  slow.durable_s_per_byte *= 1'000;
  EXPECT_EQ(every(slow), sustainable_steps(slow, 16, {})) << "storage wins";
  MeasuredCosts never = costs();
  never.failures = {0, 1e12};
  EXPECT_EQ(every(never), 18'000u) << "half an hour of steps, however rare failures are";
  MeasuredCosts fresh = costs();
  fresh.failures = {};
  EXPECT_EQ(every(fresh), sustainable_steps(fresh, 16, {})) << "nothing is known of failures";
}

TEST(AutoConfigTest, ExplanationNamesMeasurements) {
  const AutoChoice choice = choose(costs(), {.k = 8}, {});
  const std::string line = explain(costs(), choice);
  for (const char* part :
       {"a step takes 100 ms", "476.8 MiB blocks 50 ms", "after 500 ms (953.7 MiB/s)",
        "4 failures in 9e+03 s", "one in 2e+03 s expected; no recovery was measured;",
        "storage sustains 5 steps", "3 of 16 experts hide",
        "% of the time is expected to be lost"}) {
    EXPECT_THAT(line, HasSubstr(part));
  }
  MeasuredCosts recovered = costs();
  recovered.restore_s = 7.5;
  EXPECT_THAT(explain(recovered, choose(recovered, {.k = 8}, {})),
              HasSubstr("expected; a recovery takes 7.5 s; the best"));
}

}  // namespace
}  // namespace moetrain
