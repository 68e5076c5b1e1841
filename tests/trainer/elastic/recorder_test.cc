// The report of a run, from the events of its ranks.
#include <gmock/gmock.h>

#include "tests/trainer/elastic/recorder_fixture.h"

namespace moetrain {
namespace {

TEST_F(RecorderTest, ReportsAQuietRun) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 4; ++step) do_step(step);
  saved(2, true);
  saved(4, false);
  const report::Report report = recorder_.report();
  EXPECT_EQ(report.ranks, 2u);
  EXPECT_EQ(report.steps, 4u);
  EXPECT_EQ(report.tokens_per_step, 512u);
  ASSERT_EQ(report.losses.size(), 4u);
  EXPECT_EQ(report.losses[2].step, 3u);
  EXPECT_EQ(std::bit_cast<uint32_t>(report.losses[2].loss), loss_at(3));
  EXPECT_EQ(report.step_ms.p50, 11) << "the slowest rank counts";
  ASSERT_EQ(report.loads.size(), 4u);
  EXPECT_EQ(report.loads[2].step, 3u);
  EXPECT_EQ(report.loads[2].busiest_tokens, 300u);
  EXPECT_EQ(report.loads[2].max_over_mean, 1.5);
  EXPECT_EQ(report.checkpoints.count, 1u) << "failed ones do not count";
  EXPECT_EQ(report.checkpoints.bytes, 200u);
  EXPECT_EQ(report.checkpoints.stall_ms_total, 4) << "but what they cost does";
  EXPECT_EQ(report.checkpoints.stall_ms_max, 2);
  EXPECT_EQ(report.checkpoints.durable_ms_p50, 7);
  ASSERT_EQ(report.checkpoints.each.size(), 1u) << "failed ones are not listed";
  EXPECT_EQ(report.checkpoints.each[0].step, 2u);
  EXPECT_EQ(report.checkpoints.each[0].rank_bytes_max, 120u);
  EXPECT_EQ(report.checkpoints.each[0].rank_bytes_mean, 100);
  EXPECT_TRUE(report.failures.empty());
  EXPECT_TRUE(recorder_.mismatches().empty());
  EXPECT_THAT(recorder_.durable_steps(), testing::ElementsAre(2));
}

// One that dies between the commit and its own word of it has brought its part.
TEST_F(RecorderTest, ACheckpointHasTheBytesOfRanksThatDiedBeforeTheySaidSo) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 2; ++step) do_step(step);
  saved(2, true, {1});
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.checkpoints.each.size(), 1u);
  EXPECT_EQ(report.checkpoints.bytes, 200u);
  EXPECT_EQ(report.checkpoints.bytes_kept, 30u);
  EXPECT_EQ(report.checkpoints.each[0].bytes, 200u);
  EXPECT_EQ(report.checkpoints.each[0].bytes_kept, 30u);
  EXPECT_EQ(report.checkpoints.each[0].rank_bytes_max, 120u);
  EXPECT_EQ(report.checkpoints.each[0].rank_bytes_mean, 100);
}

// Survivors go on while what they had staged is still being written.
TEST_F(RecorderTest, ACheckpointMayBecomeDurableInALaterEpoch) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 2; ++step) do_step(step);
  saved(2, false, {});
  begin_epoch(2, false);
  for (const uint32_t rank : {0u, 1u}) {
    RankEvent snapshot = event(Kind::kSnapshot, rank, 2);
    snapshot.durable = true;
    snapshot.taken_in = 1;
    snapshot.durable_ms = 7;
    recorder_.add(snapshot);
  }
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.checkpoints.each.size(), 1u);
  EXPECT_EQ(report.checkpoints.each[0].bytes, 200u);
  EXPECT_EQ(report.checkpoints.each[0].durable_ms, 7);
}

TEST_F(RecorderTest, TellsThePaceThatWasInForceLast) {
  begin_epoch(0, false);
  for (const uint64_t every : {4, 9}) {
    RankEvent pacing = event(Kind::kPacing, 0, 1);
    pacing.checkpoint_every = every;
    pacing.experts_per_checkpoint = 3;
    pacing.experts_per_snapshot = 5;
    pacing.text = fmt::format("because of {}", every);
    recorder_.add(pacing);
  }
  EXPECT_EQ(recorder_.report().pace.every, 9u);
  EXPECT_EQ(recorder_.report().pace.experts, 3u);
  EXPECT_EQ(recorder_.report().pace.experts_per_snapshot, 5u);
  EXPECT_EQ(recorder_.report().pace.reason, "because of 9");
}

TEST_F(RecorderTest, TellsOfEveryLookAtThePlacement) {
  begin_epoch(0, false);
  for (const bool moved : {true, false}) {
    RankEvent replanned = event(Kind::kReplanned, 0, 4);
    replanned.moved = moved;
    replanned.balance_before = 1.5;
    replanned.balance_after = 1.25;
    replanned.bytes_moved = 77;
    replanned.plan_ms = 2;
    replanned.migrate_ms = 3;
    replanned.gain_ms = 5;
    replanned.cost_ms = 4;
    replanned.layer = 1;
    replanned.routed = {9, 1};
    replanned.slots_before = {{0}, {1}};
    replanned.slots_after = {{0, 1}, {0}};
    recorder_.add(replanned);
  }
  const auto replans = recorder_.report().replans;
  ASSERT_EQ(replans.size(), 2u);
  EXPECT_TRUE(replans[0].moved);
  EXPECT_FALSE(replans[1].moved);
  EXPECT_EQ(replans[0].step, 4u);
  EXPECT_EQ(replans[0].max_over_mean_before, 1.5);
  EXPECT_EQ(replans[0].max_over_mean_after, 1.25);
  EXPECT_EQ(replans[0].bytes, 77u);
  EXPECT_EQ(replans[0].loads, (std::vector<uint64_t>{9, 1}));
  EXPECT_EQ(replans[0].ranks_after, (LayerSlots{{0, 1}, {0}}));
}

TEST_F(RecorderTest, MeasuresAFailureFromItsBeginToTheFirstTrainingAfter) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 7; ++step) do_step(step);
  saved(5, true);
  recorder_.add(event(Kind::kDying, 1, 8));
  const uint64_t lost = now_;
  do_step(8, {0});  // the survivor had all it needed for this one
  recorder_.rank_died(1, now_ += 3 * kMs);
  EXPECT_EQ(recorder_.step(), 8u);
  begin_epoch(5, true, 1000);
  const uint64_t resumed = now_;
  for (uint64_t step = 6; step <= 9; ++step) do_step(step);
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  const report::Failure& failure = report.failures[0];
  EXPECT_THAT(failure.ranks, testing::ElementsAre(1));
  EXPECT_EQ(failure.step, 8u);
  EXPECT_EQ(failure.steps_lost, 3u);
  EXPECT_NEAR(failure.detected_ms.value(), 4, 1e-9);
  EXPECT_NEAR(failure.resumed_ms, static_cast<double>(resumed - lost) / kMs, 1e-9);
  EXPECT_EQ(failure.bytes.disk, 2000u);
  EXPECT_EQ(failure.bytes.memory, 1000u);
  EXPECT_EQ(failure.stale_units, 1u);
  EXPECT_TRUE(recorder_.mismatches().empty());
  EXPECT_EQ(report.losses.size(), 9u);
}

// A survivor's last step of the old history may be read after the new one has begun elsewhere.
TEST_F(RecorderTest, AHistoryThatLostTokensNeedNotReproduce) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 4; ++step) do_step(step);
  recorder_.rank_died(1, now_ += kMs);
  ++epoch_;
  RankEvent training = event(Kind::kTraining, 1, 2);
  training.lost_tokens = 30;
  training.plt = 0.25;
  recorder_.add(training);
  do_step(5, {0});  // of the epoch before, as far as the recorder knows of rank 0
  RankEvent other = event(Kind::kStep, 1, 3);
  other.loss_bits = loss_at(3) ^ 1;
  other.plt = 0.125;
  recorder_.add(other);
  EXPECT_TRUE(recorder_.mismatches().empty());
  training.rank = 0;
  recorder_.add(training);
  do_step(3, {0});
  EXPECT_EQ(recorder_.mismatches().size(), 1u) << "ranks still have to agree";
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.losses.size(), 3u) << "steps 4 and 5 of the old history are gone";
  EXPECT_EQ(std::bit_cast<uint32_t>(report.losses[2].loss), loss_at(3) ^ 1);
}

// A survivor went on with older experts; then it was lost, too, and all went back to before that.
TEST_F(RecorderTest, WhoGoesBackToBeforeALossNeedNotReproduceWhatFollowedIt) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 5; ++step) do_step(step);
  recorder_.rank_died(1, now_ += kMs);
  ++epoch_;
  RankEvent alone = event(Kind::kTraining, 0, 5);
  alone.lost_tokens = 30;
  alone.goes_on = true;
  alone.group = 1;
  recorder_.add(alone);
  for (uint64_t step = 6; step <= 7; ++step) {
    RankEvent other = event(Kind::kStep, 0, step);
    other.loss_bits = loss_at(step) ^ 1;
    recorder_.add(other);
  }
  recorder_.rank_died(0, now_ += kMs);
  begin_epoch(4, true);
  for (uint64_t step = 5; step <= 8; ++step) do_step(step);
  EXPECT_TRUE(recorder_.mismatches().empty());
  EXPECT_EQ(recorder_.report().failures.back().steps_lost, 3u);
  EXPECT_EQ(std::bit_cast<uint32_t>(recorder_.report().losses[5].loss), loss_at(6));

  recorder_.rank_died(0, now_ += kMs);
  begin_epoch(6, true);
  RankEvent differs = event(Kind::kStep, 0, 7);
  differs.loss_bits = loss_at(7) ^ 1;
  recorder_.add(differs);
  EXPECT_EQ(recorder_.mismatches().size(), 1u) << "that loss has not been in this history";
}

// Steps that were done before the loss are the same in both.
TEST_F(RecorderTest, WhoGoesBackToBeforeALossReproducesWhatLedToIt) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 5; ++step) do_step(step);
  recorder_.rank_died(1, now_ += kMs);
  ++epoch_;
  RankEvent alone = event(Kind::kTraining, 0, 5);
  alone.lost_tokens = 30;
  alone.goes_on = true;
  alone.group = 1;
  recorder_.add(alone);
  recorder_.rank_died(0, now_ += kMs);
  begin_epoch(4, true);
  RankEvent differs = event(Kind::kStep, 0, 5);
  differs.loss_bits = loss_at(5) ^ 1;
  recorder_.add(differs);
  EXPECT_EQ(recorder_.mismatches().size(), 1u);
}

TEST_F(RecorderTest, ReportsThePltOfTheNewestStep) {
  begin_epoch(0, false);
  RankEvent step = event(Kind::kStep, 0, 1);
  step.plt = 0.5;
  step.plt_rollback = 0.375;
  recorder_.add(step);
  EXPECT_EQ(recorder_.report().plt, 0.5);
  EXPECT_EQ(recorder_.report().plt_rollback, 0.375);
  ++epoch_;
  RankEvent training = event(Kind::kTraining, 0, 0);
  training.plt = 0.25;
  training.plt_rollback = 0.125;
  training.lost = {7, 0};
  recorder_.add(training);
  EXPECT_EQ(recorder_.report().plt, 0.25);
  EXPECT_EQ(recorder_.report().plt_rollback, 0.125);
  EXPECT_EQ(recorder_.report().lost, (std::vector<int64_t>{7, 0}));
}

TEST_F(RecorderTest, RanksLostBeforeTrainingGoesOnAreOneFailure) {
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

TEST_F(RecorderTest, AHangBeginsWithTheLastSignOfLife) {
  begin_epoch(0, false);
  do_step(1);
  const uint64_t last_sign = now_;  // of rank 1, which does the step last
  now_ += 60'000 * kMs;             // the collective's bound
  recorder_.add(event(Kind::kGroupLost, 0, 1));
  recorder_.rank_hangs(1);
  recorder_.rank_died(1, now_ += 20'000 * kMs);
  const uint64_t known = now_;
  begin_epoch(0, false);
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_NEAR(report.failures[0].detected_ms.value(), static_cast<double>(known - last_sign) / kMs,
              1e-9);
  EXPECT_NEAR(report.failures[0].resumed_ms, static_cast<double>(now_ - last_sign) / kMs, 1e-9);
}

TEST_F(RecorderTest, AFailureBeginsWhenTheGroupIsLost) {
  begin_epoch(0, false);
  do_step(1);
  recorder_.add(event(Kind::kGroupLost, 0, 1));
  const uint64_t lost = now_;
  recorder_.rank_died(1, now_ += 30 * kMs);
  begin_epoch(0, false);
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_FALSE(report.failures[0].detected_ms) << "when it was lost nobody knows";
  EXPECT_NEAR(report.failures[0].resumed_ms, static_cast<double>(now_ - lost) / kMs, 1e-9);
}

TEST_F(RecorderTest, AGroupThatIsLostWithoutADeathIsAFailureToo) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 3; ++step) do_step(step);
  recorder_.add(event(Kind::kGroupLost, 0, 3));
  recorder_.add(event(Kind::kGroupLost, 1, 3));
  begin_epoch(1, true);
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_TRUE(report.failures[0].ranks.empty());
  EXPECT_EQ(report.failures[0].steps_lost, 2u);
}

TEST_F(RecorderTest, WhoJoinsAndLeavesChangesTheMembersAndIsNoFailure) {
  begin_epoch(0, false);
  do_step(1);
  recorder_.add(event(Kind::kRegrouping, 0, 1));
  recorder_.add(event(Kind::kRegrouping, 1, 1));
  const auto train = [&](const std::vector<uint32_t>& ranks, uint64_t step, uint64_t bytes) {
    ++epoch_;
    for (const uint32_t rank : ranks) {
      RankEvent training = event(Kind::kTraining, rank, step);
      training.goes_on = true;
      training.joins = rank == 2 && step == 1;
      training.group = static_cast<uint32_t>(ranks.size());
      training.effective_replicas = 2;
      training.bytes_moved = bytes;
      training.plan_ms = 1 + rank;
      training.migrate_ms = 10 + rank;
      recorder_.add(training);
    }
  };
  train({0, 1, 2}, 1, 99);
  do_step(2, {0, 1, 2});
  RankEvent handed_over = event(Kind::kRegrouping, 1, 2);
  handed_over.bytes_moved = 77;
  recorder_.add(handed_over);
  recorder_.add(event(Kind::kDrained, 0, 2));
  train({1, 2}, 2, 0);
  do_step(3, {1, 2});
  const report::Report report = recorder_.report();
  EXPECT_TRUE(report.failures.empty());
  ASSERT_EQ(report.changes.size(), 2u);
  EXPECT_EQ(report.changes[0].step, 1u);
  EXPECT_THAT(report.changes[0].joined, testing::ElementsAre(2));
  EXPECT_TRUE(report.changes[0].left.empty());
  EXPECT_EQ(report.changes[0].group, 3u);
  EXPECT_EQ(report.changes[0].effective_replicas, 2u);
  EXPECT_EQ(report.changes[0].bytes_moved, 99u);
  EXPECT_EQ(report.changes[0].plan_ms, 3) << "the slowest";
  EXPECT_EQ(report.changes[0].migrate_ms, 12);
  EXPECT_THAT(report.changes[1].left, testing::ElementsAre(0));
  EXPECT_EQ(report.changes[1].group, 2u);
  EXPECT_EQ(report.changes[1].bytes_moved, 77u);
}

TEST_F(RecorderTest, WhoNeverTrainedIsMissedOnlyByThoseWhoTookItIn) {
  begin_epoch(0, false);
  do_step(1);
  recorder_.rank_died(2, now_ += kMs);  // it waited to be let in
  do_step(2);
  EXPECT_TRUE(recorder_.report().failures.empty());
  recorder_.rank_died(3, now_ += kMs);
  recorder_.add(event(Kind::kGroupLost, 0, 2));
  recorder_.add(event(Kind::kGroupLost, 1, 2));
  begin_epoch(2, false);
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_THAT(report.failures[0].ranks, testing::ElementsAre(3));
}

TEST_F(RecorderTest, NoticesALossThatIsNotReproduced) {
  begin_epoch(0, false);
  do_step(1);
  do_step(2, {0});
  RankEvent other = event(Kind::kStep, 1, 2);
  other.loss_bits = loss_at(2) ^ 1;
  recorder_.add(other);
  ASSERT_EQ(recorder_.mismatches().size(), 1u);
  EXPECT_THAT(recorder_.mismatches()[0], testing::HasSubstr("step 2: rank 1"));
}

TEST_F(RecorderTest, AStepCountsOncePerEpoch) {
  begin_epoch(0, false);
  RankEvent step = event(Kind::kStep, 0, 1);
  EXPECT_TRUE(recorder_.is_first_of_step(step));
  step.rank = 1;
  EXPECT_FALSE(recorder_.is_first_of_step(step));
  begin_epoch(0, false);
  EXPECT_TRUE(recorder_.is_first_of_step(step));
  step.rank = 0;
  EXPECT_FALSE(recorder_.is_first_of_step(step));
}

TEST_F(RecorderTest, ReportsTheLossOfTheDaemonByItself) {
  begin_epoch(0, false);
  do_step(1);
  recorder_.daemon_back(now_);  // its first start
  recorder_.daemon_died(now_ += kMs);
  do_step(2);
  recorder_.daemon_back(now_ += 40 * kMs);
  const report::Report report = recorder_.report();
  EXPECT_TRUE(report.failures.empty());
  ASSERT_EQ(report.daemon_failures.size(), 1u);
  EXPECT_EQ(report.daemon_failures[0].step, 2u);
  EXPECT_NEAR(report.daemon_failures[0].down_ms, 42, 1e-9);
}

}  // namespace
}  // namespace moetrain
