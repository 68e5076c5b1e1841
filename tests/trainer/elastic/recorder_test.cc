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

// A dropped snapshot has no event of its own, and no step follows the last one.
TEST_F(RecorderTest, StallCoversAllSnapshots) {
  begin_epoch(0, false);
  const auto stalled = [&](uint64_t step, double ms) {
    recorder_.add(event(1, step, StepEvent{.loss_bits = loss_at(step), .stall_ms = ms}));
  };
  stalled(1, 0);
  saved(2, true);  // 2 ms by the event of rank 1
  stalled(3, 2);   // the same
  stalled(5, 7);   // dropped
  saved(6, false);
  stalled(7, 9);  // with a wait until durable
  saved(8, true);
  const report::Report report = recorder_.report();
  EXPECT_EQ(report.checkpoints.stall_ms_total, 2 + 7 + 9 + 2);
  EXPECT_EQ(report.checkpoints.stall_ms_max, 9);
  ASSERT_EQ(report.checkpoints.each.size(), 2u);
  EXPECT_EQ(report.checkpoints.each[0].stall_ms, 2);
}

TEST_F(RecorderTest, TimingsAreMaximaOverRanks) {
  begin_epoch(0, false);
  recorder_.add(
      event(0, 2, SnapshotEvent{.durable = true, .timings = {.copy_ns = 5, .sync_ns = 3}}));
  recorder_.add(event(1, 2, SnapshotEvent{.durable = true, .timings = {.copy_ns = 7}}));
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.checkpoints.each.size(), 1u);
  EXPECT_EQ(report.checkpoints.each[0].timings,
            (ckpt::SnapshotTimings{.copy_ns = 7, .sync_ns = 3}));
}

// A rank that dies after the commit, before its own event, has contributed its part.
TEST_F(RecorderTest, CheckpointIncludesBytesOfDeadRanks) {
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

// Survivors continue while a staged snapshot is still being written.
TEST_F(RecorderTest, CheckpointMayBecomeDurableInLaterEpoch) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 2; ++step) do_step(step);
  saved(2, false, {});
  begin_epoch(2, false);
  for (const uint32_t rank : {0u, 1u}) {
    recorder_.add(event(rank, 2, SnapshotEvent{.durable = true, .taken_in = 1, .durable_ms = 7}));
  }
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.checkpoints.each.size(), 1u);
  EXPECT_EQ(report.checkpoints.each[0].bytes, 200u);
  EXPECT_EQ(report.checkpoints.each[0].durable_ms, 7);
}

TEST_F(RecorderTest, ReportsLastPace) {
  begin_epoch(0, false);
  for (const uint64_t every : {4u, 9u}) {
    const CheckpointPace pace{every, 3, 5};
    recorder_.add(event(0, 1, PacingEvent{fmt::format("because of {}", every), pace}));
  }
  EXPECT_EQ(recorder_.report().pace.every, 9u);
  EXPECT_EQ(recorder_.report().pace.experts, 3u);
  EXPECT_EQ(recorder_.report().pace.experts_per_snapshot, 5u);
  EXPECT_EQ(recorder_.report().pace.reason, "because of 9");
}

TEST_F(RecorderTest, ReportsEveryReplan) {
  begin_epoch(0, false);
  for (const bool moved : {true, false}) {
    const Relayout relayout{.bytes_moved = 77, .plan_ms = 2, .migrate_ms = 3};
    recorder_.add(event(0, 4,
                        ReplannedEvent{.moved = moved,
                                       .balance_before = 1.5,
                                       .balance_after = 1.25,
                                       .gain_ms = 5,
                                       .cost_ms = 4,
                                       .relayout = relayout,
                                       .layer = 1,
                                       .slots_before = {{0}, {1}},
                                       .slots_after = {{0, 1}, {0}},
                                       .routed = {9, 1}}));
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

// A survivor's last step of the old history may be read after the new one has begun elsewhere.
TEST_F(RecorderTest, LossesMayDifferAfterLostTokens) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 4; ++step) do_step(step);
  recorder_.rank_died(1, now_ += kMs);
  ++epoch_;
  TrainingEvent training;
  training.restored.lost_tokens = 30;
  training.relayout.plt = 0.25;
  recorder_.add(event(1, 2, training));
  do_step(5, {0});  // of the epoch before, as far as the recorder knows of rank 0
  recorder_.add(event(1, 3, StepEvent{.loss_bits = loss_at(3) ^ 1, .plt = 0.125}));
  EXPECT_TRUE(recorder_.mismatches().empty());
  recorder_.add(event(0, 2, training));
  do_step(3, {0});
  EXPECT_EQ(recorder_.mismatches().size(), 1u) << "ranks still have to agree";
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.losses.size(), 3u) << "steps 4 and 5 of the old history are gone";
  EXPECT_EQ(std::bit_cast<uint32_t>(report.losses[2].loss), loss_at(3) ^ 1);
}

// A survivor continued with older experts and was then lost, too; all ranks roll back to before.
TEST_F(RecorderTest, StepsAfterTokenLossMayDifferAfterRollback) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 5; ++step) do_step(step);
  recorder_.rank_died(1, now_ += kMs);
  ++epoch_;
  recorder_.add(event(
      0, 5,
      TrainingEvent{.survivors_continue = true, .group = 1, .restored = {.lost_tokens = 30}}));
  for (uint64_t step = 6; step <= 7; ++step) {
    recorder_.add(event(0, step, StepEvent{.loss_bits = loss_at(step) ^ 1}));
  }
  recorder_.rank_died(0, now_ += kMs);
  begin_epoch(4, true);
  for (uint64_t step = 5; step <= 8; ++step) do_step(step);
  EXPECT_TRUE(recorder_.mismatches().empty());
  EXPECT_EQ(recorder_.report().failures.back().steps_lost, 3u);
  EXPECT_EQ(std::bit_cast<uint32_t>(recorder_.report().losses[5].loss), loss_at(6));

  recorder_.rank_died(0, now_ += kMs);
  begin_epoch(6, true);
  recorder_.add(event(0, 7, StepEvent{.loss_bits = loss_at(7) ^ 1}));
  EXPECT_EQ(recorder_.mismatches().size(), 1u) << "that loss has not been in this history";
}

// Steps that were done before the loss are the same in both.
TEST_F(RecorderTest, StepsBeforeTokenLossMustReproduceAfterRollback) {
  begin_epoch(0, false);
  for (uint64_t step = 1; step <= 5; ++step) do_step(step);
  recorder_.rank_died(1, now_ += kMs);
  ++epoch_;
  recorder_.add(event(
      0, 5,
      TrainingEvent{.survivors_continue = true, .group = 1, .restored = {.lost_tokens = 30}}));
  recorder_.rank_died(0, now_ += kMs);
  begin_epoch(4, true);
  recorder_.add(event(0, 5, StepEvent{.loss_bits = loss_at(5) ^ 1}));
  EXPECT_EQ(recorder_.mismatches().size(), 1u);
}

TEST_F(RecorderTest, ReportsThePltOfTheNewestStep) {
  begin_epoch(0, false);
  recorder_.add(event(0, 1, StepEvent{.plt = 0.5, .plt_rollback = 0.375}));
  EXPECT_EQ(recorder_.report().plt, 0.5);
  EXPECT_EQ(recorder_.report().plt_rollback, 0.375);
  ++epoch_;
  const Relayout relayout{.plt = 0.25, .plt_rollback = 0.125, .lost = {7, 0}};
  recorder_.add(event(0, 0, TrainingEvent{.relayout = relayout}));
  EXPECT_EQ(recorder_.report().plt, 0.25);
  EXPECT_EQ(recorder_.report().plt_rollback, 0.125);
  EXPECT_EQ(recorder_.report().lost, (std::vector<int64_t>{7, 0}));
}

TEST_F(RecorderTest, JoinsAndLeavesAreChangesNotFailures) {
  begin_epoch(0, false);
  do_step(1);
  recorder_.add(event(0, 1, RegroupingEvent{}));
  recorder_.add(event(1, 1, RegroupingEvent{}));
  const auto train = [&](const std::vector<uint32_t>& ranks, uint64_t step, uint64_t bytes) {
    ++epoch_;
    for (const uint32_t rank : ranks) {
      const Relayout relayout{.bytes_moved = bytes,
                              .plan_ms = 1.0 + rank,
                              .migrate_ms = 10.0 + rank,
                              .memory_bytes = rank == 1 ? 50u : 40u,  // rank 1 takes most
                              .memory_bound = rank == 1 ? 55u : 60u};
      recorder_.add(event(rank, step,
                          TrainingEvent{.survivors_continue = true,
                                        .joins = rank == 2 && step == 1,
                                        .group = static_cast<uint32_t>(ranks.size()),
                                        .effective_replicas = 2,
                                        .relayout = relayout}));
    }
  };
  train({0, 1, 2}, 1, 99);
  do_step(2, {0, 1, 2});
  recorder_.add(event(1, 2, RegroupingEvent{.relayout = {.bytes_moved = 77}}));
  recorder_.add(event(0, 2, DrainedEvent{}));
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
  EXPECT_EQ(report.changes[0].memory_bytes, 50u);
  EXPECT_EQ(report.changes[0].memory_bound, 55u) << "of the rank with most";
  EXPECT_THAT(report.changes[1].left, testing::ElementsAre(0));
  EXPECT_EQ(report.changes[1].group, 2u);
  EXPECT_EQ(report.changes[1].bytes_moved, 77u);
}

TEST_F(RecorderTest, NoticesLossThatDiffersBetweenRanks) {
  begin_epoch(0, false);
  do_step(1);
  do_step(2, {0});
  recorder_.add(event(1, 2, StepEvent{.loss_bits = loss_at(2) ^ 1}));
  ASSERT_EQ(recorder_.mismatches().size(), 1u);
  EXPECT_THAT(recorder_.mismatches()[0], testing::HasSubstr("step 2: rank 1"));
}

TEST_F(RecorderTest, AStepCountsOncePerEpoch) {
  begin_epoch(0, false);
  EventHeader step{.rank = 0, .step = 1};
  EXPECT_TRUE(recorder_.is_first_of_step(step));
  step.rank = 1;
  EXPECT_FALSE(recorder_.is_first_of_step(step));
  begin_epoch(0, false);
  EXPECT_TRUE(recorder_.is_first_of_step(step));
  step.rank = 0;
  EXPECT_FALSE(recorder_.is_first_of_step(step));
}

TEST_F(RecorderTest, ReportsDaemonFailureSeparately) {
  begin_epoch(0, false);
  do_step(1);
  recorder_.daemon_back(now_);  // its first start
  recorder_.daemon_died(now_ += kMs);
  do_step(2);
  recorder_.daemon_back(now_ += 40 * kMs);
  const report::Report report = recorder_.report();
  EXPECT_TRUE(report.failures.empty());
  ASSERT_EQ(report.daemon_failures.size(), 1u);
  EXPECT_EQ(report.daemon_failures[0].step, 1u) << "the last one before it";
  EXPECT_NEAR(report.daemon_failures[0].down_ms.value(), 42, 1e-9);
}

TEST_F(RecorderTest, DaemonThatStaysDownIsReported) {
  begin_epoch(0, false);
  do_step(1);
  recorder_.daemon_died(now_ += kMs);
  do_step(2);
  recorder_.daemon_died(now_ += kMs);  // its successor
  const report::Report report = recorder_.report();
  ASSERT_EQ(report.daemon_failures.size(), 1u);
  EXPECT_EQ(report.daemon_failures[0].step, 1u);
  EXPECT_FALSE(report.daemon_failures[0].down_ms);
}

}  // namespace
}  // namespace moetrain
