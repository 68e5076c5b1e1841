// Losses of ranks: when they begin and end, at which step, and which ranks belong together.
#include <gmock/gmock.h>

#include "tests/trainer/elastic/recorder_fixture.h"

namespace moetrain {
namespace {

// Through the recorder, which the supervisor asks.
using FailureLogTest = RecorderTest;

TEST_F(FailureLogTest, MeasuresFailureFromLossToResumedTraining) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 7; ++step) do_step(step);
  saved(5, true);
  recorder_.add(event(1, 8, DyingEvent{}));
  const uint64_t lost = now_;
  do_step(8, {0});  // the survivor had all it needed for this one
  EXPECT_EQ(recorder_.rank_died(1, now_ += 3 * kMs), 8u) << "it had not completed this one";
  EXPECT_EQ(recorder_.step(), 8u);
  begin_epoch(5, true, 1000);
  const uint64_t resumed = now_;
  for (uint64_t step = 6; step <= 9; ++step) do_step(step);
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  const report::Failure& failure = report.failures[0];
  EXPECT_THAT(failure.ranks, testing::ElementsAre(1));
  EXPECT_EQ(failure.step, 8u);
  EXPECT_EQ(failure.at_step, 8u);
  EXPECT_EQ(failure.steps_lost, 3u);
  EXPECT_NEAR(failure.detected_ms.value(), 4, 1e-9);
  EXPECT_NEAR(failure.resumed_ms.value(), static_cast<double>(resumed - lost) / kMs, 1e-9);
  EXPECT_EQ(failure.bytes.disk, 2000u);
  EXPECT_EQ(failure.bytes.memory, 1000u);
  EXPECT_EQ(failure.stale_units, 1u);
  EXPECT_TRUE(recorder_.mismatches().empty());
  EXPECT_EQ(report.losses.size(), 9u);
}

TEST_F(FailureLogTest, LossesBeforeTrainingResumesAreOneFailure) {
  begin_epoch(0, false);
  do_step(1);
  recorder_.rank_died(0, now_ += kMs);
  recorder_.rank_died(1, now_ += kMs);
  recorder_.rank_died(1, now_ += kMs);
  begin_epoch(0, false);
  do_step(1);
  recorder_.rank_died(0, now_ += kMs);
  begin_epoch(0, false);
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.failures.size(), 2u);
  EXPECT_THAT(report.failures[0].ranks, testing::ElementsAre(0, 1));
  EXPECT_EQ(report.failures[0].steps_lost, 1u);
  EXPECT_FALSE(report.failures[0].detected_ms) << "nobody told when it began";
}

TEST_F(FailureLogTest, HangBeginsAtLastEventOfRank) {
  begin_epoch(0, false);
  do_step(1);
  const uint64_t last_sign = now_;  // of rank 1, which does the step last
  now_ += 60'000 * kMs;             // the collective's bound
  recorder_.add(event(0, 1, GroupLostEvent{}));
  recorder_.rank_hangs(1);
  recorder_.rank_died(1, now_ += 20'000 * kMs);
  const uint64_t known = now_;
  begin_epoch(0, false);
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_NEAR(report.failures[0].detected_ms.value(), static_cast<double>(known - last_sign) / kMs,
              1e-9);
  EXPECT_NEAR(report.failures[0].resumed_ms.value(), static_cast<double>(now_ - last_sign) / kMs,
              1e-9);
}

TEST_F(FailureLogTest, AFailureBeginsWhenTheGroupIsLost) {
  begin_epoch(0, false);
  do_step(1);
  recorder_.add(event(0, 1, GroupLostEvent{}));
  const uint64_t lost = now_;
  recorder_.rank_died(1, now_ += 30 * kMs);
  begin_epoch(0, false);
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_FALSE(report.failures[0].detected_ms) << "when it was lost nobody knows";
  EXPECT_NEAR(report.failures[0].resumed_ms.value(), static_cast<double>(now_ - lost) / kMs, 1e-9);
}

TEST_F(FailureLogTest, GroupLossWithoutDeathIsFailure) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 3; ++step) do_step(step);
  recorder_.add(event(0, 3, GroupLostEvent{}));
  recorder_.add(event(1, 3, GroupLostEvent{}));
  begin_epoch(1, true);
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_TRUE(report.failures[0].ranks.empty());
  EXPECT_EQ(report.failures[0].steps_lost, 2u);
}

TEST_F(FailureLogTest, UntrainedRankFailsOnlyIfGroupIsLost) {
  begin_epoch(0, false);
  do_step(1);
  recorder_.rank_died(2, now_ += kMs);  // a joining rank that was still waiting
  do_step(2);
  EXPECT_TRUE(recorder_.report().failures.empty());
  recorder_.rank_died(3, now_ += kMs);
  recorder_.add(event(0, 2, GroupLostEvent{}));
  recorder_.add(event(1, 2, GroupLostEvent{}));
  begin_epoch(2, false);
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_THAT(report.failures[0].ranks, testing::ElementsAre(3));
}

TEST_F(FailureLogTest, RankThatNeverRestartsIsReported) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 3; ++step) do_step(step);
  recorder_.add(event(0, 3, GroupLostEvent{}));
  EXPECT_TRUE(recorder_.report().failures.empty()) << "its ranks may be on their way";
  EXPECT_EQ(recorder_.rank_died(1, now_ += kMs), 4u);
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_THAT(report.failures[0].ranks, testing::ElementsAre(1));
  EXPECT_EQ(report.failures[0].at_step, 4u);
  EXPECT_FALSE(report.failures[0].resumed_ms);
}

TEST_F(FailureLogTest, RankLostInFinalCheckpointHasItsStep) {
  begin_epoch(0, false);
  do_step(1);
  recorder_.add(event(1, 1, SavingEvent{}));
  EXPECT_EQ(recorder_.rank_died(1, now_ += kMs), 1u) << "there is no step 2";
}

// Ranks are heard one after the other, and killed one after the other.
TEST_F(FailureLogTest, RanksOfOneFailureShareItsStep) {
  begin_epoch(0, false);
  do_step(1);
  do_step(2, {0});
  EXPECT_EQ(recorder_.rank_died(1, now_ += kMs), 2u);
  EXPECT_EQ(recorder_.rank_died(0, now_ += kMs), 2u);
  begin_epoch(0, false);
  EXPECT_EQ(recorder_.report().failures.at(0).at_step, 2u);
  EXPECT_EQ(recorder_.rank_died(0, now_ += kMs), 1u) << "all went back to the start";
}

}  // namespace
}  // namespace moetrain
