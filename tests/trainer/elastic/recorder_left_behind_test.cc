// The report of a run that continued without a rank whose process was alive.
#include <gmock/gmock.h>

#include "tests/trainer/elastic/recorder_fixture.h"

namespace moetrain {
namespace {

// Rank 3 is stopped and rank 2 killed; the survivors wait no longer than the grace period.
class LeftBehindTest : public RecorderTest {
 protected:
  void begin(const std::vector<uint32_t>& ranks) {
    ++epoch_;
    for (const uint32_t rank : ranks) {
      four_.add(event(rank, 1,
                      TrainingEvent{.survivors_continue = epoch_ > 1,
                                    .group = static_cast<uint32_t>(ranks.size())}));
    }
  }
  void lose_group(const std::vector<uint32_t>& ranks, uint64_t epoch) {
    for (const uint32_t rank : ranks) {
      RankEvent lost = event(rank, 1, GroupLostEvent{});
      lost.header.epoch = epoch;
      four_.add(lost);
    }
  }
  void leave_3_behind() {
    begin({0, 1, 2, 3});
    four_.rank_died(2, now_ += kMs);
    lose_group({0, 1}, 1);
    begin({0, 1});
  }

  // Rank 3 hangs in a step; `beats`: its heartbeats continue.
  void hang(bool beats) {
    begin({0, 1, 2, 3});
    four_.add(event(3, 2, StepEvent{}));
    acted_ = now_;
    for (int beat = 0; beat < 5; ++beat) {
      now_ += 100 * kMs;
      if (beats || beat == 0) four_.add(event(3, 0, AliveEvent{}));
      if (beat == 0) stopped_ = now_;
    }
    lose_group({0, 1, 2}, 1);
    noticed_ = now_;
    if (beats) four_.add(event(3, 0, AliveEvent{}));
    now_ += 20 * kMs;
    begin({0, 1, 2});
  }
  static double ms(uint64_t from_ns, uint64_t to_ns) {
    return static_cast<double>(to_ns - from_ns) / kMs;
  }

  uint64_t acted_ = 0;    // time of the hanging rank's last step
  uint64_t stopped_ = 0;  // time of its last heartbeat, if heartbeats stop
  uint64_t noticed_ = 0;
  Recorder four_{4, 512};
};

// No process dies: only the ranks that waited in a collective report the loss.
TEST_F(LeftBehindTest, HangWithoutHeartbeatBeginsAtLastHeartbeat) {
  hang(/*beats=*/false);
  const report::Report report = four_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  const report::Failure& failure = report.failures[0];
  EXPECT_THAT(failure.ranks, testing::ElementsAre(3));
  EXPECT_NEAR(failure.detected_ms.value(), ms(stopped_, noticed_), 1e-9);
  EXPECT_NEAR(failure.resumed_ms.value(), ms(stopped_, now_), 1e-9);
  EXPECT_NEAR(failure.split_ms.detect, ms(stopped_, noticed_), 1e-9);
}

TEST_F(LeftBehindTest, HangWithHeartbeatsBeginsAtLastStep) {
  hang(/*beats=*/true);
  const report::Report report = four_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_NEAR(report.failures[0].detected_ms.value(), ms(acted_, noticed_), 1e-9);
  EXPECT_NEAR(report.failures[0].resumed_ms.value(), ms(acted_, now_), 1e-9);
}

// The supervisor reports the dead process later than the death; the time of the kill is unknown.
TEST_F(LeftBehindTest, ExternalKillHasNoDetectionTime) {
  begin({0, 1, 2, 3});
  lose_group({0}, 1);
  const uint64_t first_sign = now_;
  four_.rank_died(3, now_ += 7 * kMs);
  lose_group({1, 2}, 1);
  const uint64_t noticed = now_;
  begin({0, 1, 2});
  const report::Report report = four_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_FALSE(report.failures[0].detected_ms);
  EXPECT_NEAR(report.failures[0].resumed_ms.value(), ms(first_sign, now_), 1e-9);
  EXPECT_NEAR(report.failures[0].split_ms.detect, ms(first_sign, noticed), 1e-9);
}

// Rank 0 plans while rank 1 is still connecting: overlapping phases are not counted twice.
TEST_F(LeftBehindTest, RecoveryPhasesAddUpToTotal) {
  begin({0, 1, 2, 3});
  four_.add(event(3, 2, DyingEvent{}));
  const uint64_t lost = now_;
  four_.rank_died(3, now_ += 2 * kMs);
  lose_group({0, 1, 2}, 1);
  ++epoch_;
  for (const uint32_t rank : {0u, 1u, 2u}) {
    now_ += 30 * kMs;
    four_.add(event(rank, 0, ConnectingEvent{}));
    four_.add(event(rank, 0, RestoringEvent{}));
  }
  now_ += 40 * kMs;
  for (const uint32_t rank : {0u, 1u, 2u}) {
    // plan_ms includes the wait for the last rank.
    const Relayout relayout{.plan_ms = 95 - 31.0 * rank, .migrate_ms = 10};
    four_.add(event(rank, 1,
                    TrainingEvent{.survivors_continue = true,
                                  .group = 3,
                                  .regroup_ms = 30.0 * (rank + 1),
                                  .relayout = relayout}));
  }
  const uint64_t ready = now_;
  EXPECT_EQ(four_.report().failures.at(0).split_ms.first_step, 0) << "none was completed yet";
  for (const uint32_t rank : {0u, 1u, 2u}) {
    now_ += 5 * kMs;
    four_.add(event(rank, 2, StepEvent{}));
  }
  const uint64_t done = now_;
  four_.add(event(0, 3, StepEvent{}));
  const report::Failure failure = four_.report().failures.at(0);
  const report::Failure::Split& split = failure.split_ms;
  EXPECT_NEAR(split.detect, 5, 1e-9);
  EXPECT_NEAR(split.regroup, 96, 1e-9) << "until the last one was connected";
  EXPECT_NEAR(split.plan, 33, 1e-9) << "from then on";
  EXPECT_NEAR(split.first_step, ms(ready, done), 1e-9) << "the first of each rank, until the last";
  EXPECT_NEAR(split.detect + split.regroup + split.plan + split.migrate, failure.resumed_ms.value(),
              1e-9);
  EXPECT_NEAR(failure.resumed_ms.value() + split.first_step, ms(lost, done), 1e-9);
}

TEST_F(LeftBehindTest, LaterKilledRankBelongsToFirstFailure) {
  leave_3_behind();
  for (const uint32_t rank : {0u, 1u}) four_.add(event(rank, 2, StepEvent{}));
  four_.rank_hangs(3);
  EXPECT_EQ(four_.rank_died(3, now_ += kMs), 2u) << "the step of the failure that names it";
  const report::Report report = four_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_EQ(report.failures[0].at_step, 2u);
  EXPECT_THAT(report.failures[0].ranks, testing::ElementsAre(2, 3));
  EXPECT_EQ(report.failures[0].group, 2u);
}

TEST_F(LeftBehindTest, EndOfExcludedRankHidesNoLaterFailure) {
  leave_3_behind();
  for (const bool while_lost : {false, true}) {
    if (!while_lost) four_.rank_died(3, now_ += kMs);
    four_.rank_died(1, now_ += kMs);
    if (while_lost) four_.rank_died(3, now_ += kMs);
    lose_group({0}, epoch_);
    begin({0});
    begin({0, 1});  // it joins again
  }
  const report::Report report = four_.report();
  ASSERT_EQ(report.failures.size(), 3u);
  EXPECT_THAT(report.failures[0].ranks, testing::ElementsAre(2, 3));
  EXPECT_THAT(report.failures[1].ranks, testing::ElementsAre(1));
  EXPECT_THAT(report.failures[2].ranks, testing::ElementsAre(1));
  EXPECT_EQ(report.failures[2].group, 1u);
}

TEST_F(LeftBehindTest, RejoiningRankCausesNoSecondFailure) {
  leave_3_behind();
  lose_group({3}, 1);
  begin({0, 1, 3});
  const report::Report report = four_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_THAT(report.failures[0].ranks, testing::ElementsAre(2, 3));
}

TEST_F(LeftBehindTest, DrainedRankIsNotLost) {
  begin({0, 1, 2, 3});
  four_.add(event(3, 1, DrainedEvent{}));
  four_.rank_died(2, now_ += kMs);
  lose_group({0, 1}, 1);
  begin({0, 1});
  ASSERT_EQ(four_.report().failures.size(), 1u);
  EXPECT_THAT(four_.report().failures[0].ranks, testing::ElementsAre(2));
}

}  // namespace
}  // namespace moetrain
