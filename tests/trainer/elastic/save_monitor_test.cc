// Messages about failing checkpoints, and about training that stalls because of checkpoints.
#include "trainer/elastic/save_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint64_t kOneSecondNs = 1'000'000'000;

class SaveMonitorTest : public testing::Test {
 protected:
  void add(const EventHeader& at, EventBody body) {
    monitor_.add({.header = {at.rank, now_ns_, at.epoch, at.step}, .body = std::move(body)});
  }
  void fails(uint32_t rank, uint64_t step, const std::string& reason,
             ckpt::ErrorDetail detail = ckpt::ErrorDetail::kNone) {
    add({.rank = rank, .step = step},
        SnapshotEvent{.reason = reason, .detail = static_cast<int32_t>(detail)});
  }
  void durable(uint32_t rank, uint64_t step) {
    add({.rank = rank, .step = step},
        SnapshotEvent{.durable = true, .bytes = 12 << 20, .durable_ms = 12'000});
  }
  void no_answer(uint32_t rank, uint64_t step) {
    add({.rank = rank, .step = step},
        SnapshotEvent{.reason = "ckptd at /s did not answer for 1000 ms", .no_answer = true});
  }
  void trains(uint32_t rank, uint64_t epoch, uint64_t step) {
    add({.rank = rank, .epoch = epoch, .step = step}, TrainingEvent{});
  }
  void steps(uint32_t rank, uint64_t step) { add({.rank = rank, .step = step}, StepEvent{}); }
  // All four ranks wait like this in the step, and all have reported it.
  void stall(uint64_t step, const StepEvent& waits) {
    for (uint32_t rank = 0; rank < 4; ++rank) add({.rank = rank, .step = step}, waits);
    now_ns_ += StallWatch::kGatherNs;
  }
  std::vector<std::string> lines() { return monitor_.poll({}, now_ns_).lines; }

  SaveMonitor monitor_{{.socket = "/s"}};
  uint64_t now_ns_ = kOneSecondNs;
};

TEST(SnapshotCauseTest, OmitsNamesOfRunStepAndRank) {
  EXPECT_EQ(snapshot_cause("run a step 5: the snapshot failed: run a step 5: the disk is full"),
            "the disk is full");
  for (const char* phrase : {"aborted it", "gave it up"}) {
    EXPECT_EQ(snapshot_cause(std::string("run a step 5: rank 3 ") + phrase + ": step 5: no slab"),
              "no slab");
  }
  EXPECT_EQ(snapshot_cause("rank 3: slab 4: bad"), "slab 4: bad");
  for (const char* plain : {"run out of slabs", "rank", "rank x: y", "step by step: z", ""}) {
    EXPECT_EQ(snapshot_cause(plain), plain);
  }
}

TEST_F(SaveMonitorTest, ReportsEachCauseOnce) {
  for (uint64_t step = 5; step <= 20; step += 5) {
    for (uint32_t rank = 0; rank < 4; ++rank) {
      fails(rank, step,
            rank == 2 ? std::string(kOtherRankFailed)
                      : "run a step " + std::to_string(step) +
                            ": the disk is full: " + std::to_string(step * 7) + " bytes free");
    }
  }
  EXPECT_THAT(lines(), ElementsAre("the checkpoint of step 5 failed: the disk is full: 35 bytes "
                                   "free"));
  now_ns_ += 5 * kOneSecondNs;
  EXPECT_THAT(lines(), IsEmpty()) << "no rank is blamed for what has a cause";
  fails(0, 25, "run a step 25: the disk is full: 1 bytes free");
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("checkpoints still fail, 5 since step 5: the disk")));
  fails(0, 30, "EIO");
  EXPECT_THAT(lines(), ElementsAre("the checkpoint of step 30 failed: EIO")) << "a new cause";
  durable(0, 15);
  EXPECT_THAT(lines(), IsEmpty()) << "was on its way before";
  durable(0, 35);
  durable(1, 35);
  EXPECT_THAT(lines(), ElementsAre("checkpoints succeed again: step 35 is durable; 3 failed since "
                                   "step 20"));
  fails(0, 40, "EIO");
  EXPECT_THAT(lines(), ElementsAre("the checkpoint of step 40 failed: EIO")) << "it is back";
}

TEST_F(SaveMonitorTest, NumbersDoNotChangeCause) {
  fails(0, 5,
        "disk full: /d (file system /): 2.7 MiB needed, 0 B available (1.5 MiB free; 3 B left)");
  fails(0, 6, "disk full: /d (file system /): 12 KiB needed, 1.5 GiB available (0 B free)");
  EXPECT_EQ(lines().size(), 1u);
}

TEST_F(SaveMonitorTest, FullDiskIsReportedInFullOnce) {
  const std::string full =
      "disk full: No space left on device: /d (file system /): 2.7 MiB needed, 0 B available (0 B "
      "free); delete commits or other files there";
  const std::string brief = "disk full: No space left on device: /d";
  constexpr auto kDiskFull = ckpt::ErrorDetail::kDiskFull;
  trains(0, 1, 0);
  steps(0, 12);
  fails(0, 5, "run a step 5: " + full, kDiskFull);
  EXPECT_THAT(lines(), ElementsAre("the checkpoint of step 5 failed: " + full));
  fails(0, 10, "run a step 10: disk full: /d (file system /): segments/3: No space left on device",
        kDiskFull);
  EXPECT_THAT(lines(), IsEmpty()) << "the same cause in other words";
  now_ns_ += 60 * kOneSecondNs;
  fails(0, 12, "run a step 12: " + full, kDiskFull);
  EXPECT_THAT(lines(), ElementsAre("checkpoints still fail, 3 since step 5: " + brief +
                                   " (told in full for step 5)"));
  EXPECT_EQ(monitor_.unsaved().cause(), brief);
  EXPECT_EQ(monitor_.with_cause("run a step 12: the last checkpoint could not be saved: " + full),
            "run a step 12: the last checkpoint could not be saved: " + brief +
                " (told in full for step 5)");
  const auto periods = monitor_.unsaved().periods(now_ns_);
  ASSERT_EQ(periods.size(), 1u);
  EXPECT_EQ(periods[0].cause, full) << "the report keeps all of it";
  durable(0, 15);
  (void)lines();
  fails(0, 20, full, kDiskFull);
  EXPECT_THAT(lines(), ElementsAre("the checkpoint of step 20 failed: " + full)) << "full again";
}

TEST_F(SaveMonitorTest, FullJournalIsNotReportedAsFullDisk) {
  const std::string full = "disk full: No space left on device: /d (file system /): ";
  fails(0, 5, full + "2.7 MiB needed, 0 B available", ckpt::ErrorDetail::kDiskFull);
  EXPECT_EQ(lines().size(), 1u);
  const std::string journal = full + "the journal needs 8 KiB more and cannot grow";
  fails(0, 10, journal, ckpt::ErrorDetail::kJournalFull);
  EXPECT_THAT(lines(), ElementsAre("the checkpoint of step 10 failed: " + journal));
}

TEST_F(SaveMonitorTest, OtherTextWithoutDetailIsNewCause) {
  fails(0, 5, "disk full: /d (file system /): 2.7 MiB needed, 0 B available");
  fails(0, 10, "disk full: /d (file system /): the journal needs 8 KiB more");
  EXPECT_EQ(lines().size(), 2u) << "an older ckptd sends no detail";
}

TEST_F(SaveMonitorTest, OlderPendingCheckpointsDoNotEndFailure) {
  fails(0, 9, "EIO");
  durable(0, 3);
  now_ns_ += kOneSecondNs;
  durable(0, 6);
  auto periods = monitor_.unsaved().periods(now_ns_);
  ASSERT_EQ(periods.size(), 1u);
  EXPECT_EQ(periods[0].since, 6u);
  EXPECT_FALSE(periods[0].saved);
  durable(0, 12);
  periods = monitor_.unsaved().periods(now_ns_);
  ASSERT_EQ(periods.size(), 1u);
  EXPECT_TRUE(periods[0].saved);
  EXPECT_EQ(periods[0].until, 12u);
}

// A slow disk: some checkpoints fail, others become durable meanwhile.
TEST_F(SaveMonitorTest, FailuresAreCountedSinceTheLastSuccess) {
  for (uint64_t step = 20; step <= 40; step += 5) fails(0, step, "the disk is slow");
  EXPECT_EQ(lines().size(), 1u);
  fails(0, 60, "the disk is slow");
  for (uint64_t step = 45; step <= 55; step += 5) durable(0, step);
  now_ns_ += 10 * kOneSecondNs;
  fails(0, 65, "the disk is slow");
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("checkpoints still fail, 2 since step 60: the disk")));
  durable(0, 70);
  EXPECT_THAT(lines(), ElementsAre("checkpoints succeed again: step 70 is durable; 2 failed since "
                                   "step 60"));
}

TEST_F(SaveMonitorTest, FailureWithoutCauseIsReportedAfterDelay) {
  fails(1, 5, std::string(kOtherRankFailed));
  EXPECT_THAT(lines(), IsEmpty());
  now_ns_ += 3 * kOneSecondNs;
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("the checkpoint of step 5 failed: another rank")));
}

TEST_F(SaveMonitorTest, FatalErrorNamesTheCauseAnotherRankHad) {
  const std::string blames =
      "run a step 9: the last checkpoint could not be saved: " + std::string(kOtherRankFailed);
  EXPECT_EQ(monitor_.with_cause(blames), blames);
  fails(3, 9, "run a step 9: the disk is full");
  EXPECT_EQ(monitor_.with_cause(blames),
            "run a step 9: the last checkpoint could not be saved: the disk is full");
  EXPECT_EQ(monitor_.with_cause("something else"), "something else");
}

TEST_F(SaveMonitorTest, MissingAnswerIsNotReportedAsFailure) {
  no_answer(0, 5);
  EXPECT_THAT(lines(), IsEmpty());
}

TEST_F(SaveMonitorTest, StallReportNamesCauseAndRemedy) {
  for (uint32_t rank = 0; rank < 4; ++rank) durable(rank, 5);
  stall(10, {.room_ms = 8'800, .snapshots_open = 3});
  EXPECT_THAT(lines(), ElementsAre(AllOf(HasSubstr("step 10: training stood still for 8.8 s"),
                                         HasSubstr("the disk is slow (the last one took 12.0 s for "
                                                   "48.0 MiB, 4.0 MiB/s)"),
                                         HasSubstr("--out-of-slabs"), Not(HasSubstr("stalls")))));
  durable(0, 10);  // one rank of four
  stall(15, {.room_ms = 8'800, .snapshots_open = 3});
  EXPECT_THAT(lines(), IsEmpty()) << "rate limited";
  now_ns_ += 5 * kOneSecondNs;
  stall(20, {.room_ms = 8'800, .snapshots_open = 3});
  EXPECT_THAT(lines(), ElementsAre(AllOf(HasSubstr("for 48.0 MiB"),
                                         HasSubstr("3 such stalls so far, 26.4 s in all"))));
  stall(25, {.slabs_ms = 2'000});
  EXPECT_THAT(lines(), ElementsAre(AllOf(HasSubstr("no slab of the arena"),
                                         HasSubstr("in the first seconds"),
                                         Not(HasSubstr("the disk is slow")))));
  now_ns_ += 500 * kOneSecondNs;
  stall(30, {.stall_ms = 5'000, .slabs_ms = 100});
  EXPECT_THAT(lines(), IsEmpty()) << "a copy is work, not a wait";
}

TEST_F(SaveMonitorTest, LongWaitReportsWholeStall) {
  durable(0, 5);
  stall(10, {.stall_ms = 1'200, .room_ms = 900, .snapshots_open = 3});
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("training stood still for 1.2 s, until earlier")));
}

// Right after a restart of ckptd every checkpoint waits, however fast its disk is.
TEST_F(SaveMonitorTest, StallIsNotBlamedOnFastDisk) {
  for (uint32_t rank = 0; rank < 4; ++rank) {
    add({.rank = rank, .step = 5},
        SnapshotEvent{.durable = true, .bytes = 1 << 20, .durable_ms = 69});
  }
  stall(10, {.room_ms = 900, .snapshots_open = 3});
  EXPECT_THAT(lines(), ElementsAre(AllOf(
                           HasSubstr("training stood still for 900 ms, until earlier checkpoints "
                                     "were written, longer than the rate of the last one "
                                     "explains (the last one took 69 ms for "
                                     "4.0 MiB, 58.0 MiB/s): ckptd or its disk was held up"),
                           Not(HasSubstr("--out-of-slabs")))));
}

TEST_F(SaveMonitorTest, LongStallIsReportedDuringAndAfter) {
  durable(0, 5);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    add({.rank = rank, .step = 20}, StallingEvent{.waited_ms = 2'000, .snapshots_open = 3});
  }
  EXPECT_THAT(lines(),
              ElementsAre(AllOf(HasSubstr("step 21: training stands still, for 2.0 s so far, until "
                                          "earlier checkpoints are written: the disk is slow ("),
                                HasSubstr("--out-of-slabs"))));
  now_ns_ += 6 * kOneSecondNs;
  EXPECT_THAT(lines(), IsEmpty()) << "told once";
  stall(21, {.room_ms = 8'800, .snapshots_open = 3});
  EXPECT_THAT(lines(), ElementsAre("step 21: training continues after 8.8 s"));
  EXPECT_THAT(lines(), IsEmpty());
}

TEST_F(SaveMonitorTest, NextStepEndsStall) {
  durable(0, 5);
  add({.step = 20}, StallingEvent{.waited_ms = 2'000, .snapshots_open = 3});
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("step 21: training stands still")));
  stall(21, {.snapshots_open = 3});
  EXPECT_THAT(lines(), ElementsAre("step 21: training continues after 2.0 s"));
  add({.step = 21}, StallingEvent{.waited_ms = 2'000, .snapshots_open = 3});
  EXPECT_THAT(lines(), IsEmpty()) << "so soon after the last one";
  stall(22, {.snapshots_open = 3});
  now_ns_ += 300 * kOneSecondNs;
  EXPECT_THAT(lines(), IsEmpty()) << "it is long over";
}

TEST_F(SaveMonitorTest, UnreadyMemoryIsNotReportedAsSmallArena) {
  stall(5, {.slabs_ms = 2'000});
  EXPECT_THAT(lines(),
              ElementsAre(AllOf(HasSubstr("memory was not ready"), HasSubstr("--warm-pool"),
                                Not(HasSubstr("larger --arena")))));
}

TEST_F(SaveMonitorTest, SlowestRankOfAStepCounts) {
  for (uint32_t rank = 0; rank < 4; ++rank) {
    add({.rank = rank, .step = 10}, StepEvent{.slabs_ms = 1'000.0 * (rank + 1)});
    EXPECT_THAT(lines(), IsEmpty()) << "others may have waited longer";
  }
  now_ns_ += StallWatch::kGatherNs;
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("step 10: training stood still for 4.0 s")));
}

TEST_F(SaveMonitorTest, UnansweredRankCausesNoFailureReport) {
  for (const bool silent_rank_first : {true, false}) {
    const uint64_t step = silent_rank_first ? 5 : 10;
    if (silent_rank_first) no_answer(0, step);
    fails(1, step, std::string(kOtherRankFailed));
    if (!silent_rank_first) no_answer(0, step);
    fails(2, step, std::string(kOtherRankFailed));
    now_ns_ += 3 * kOneSecondNs;
    EXPECT_THAT(lines(), IsEmpty()) << "no rank is blamed";
  }
  fails(1, 15, std::string(kOtherRankFailed));
  now_ns_ += 3 * kOneSecondNs;
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("the checkpoint of step 15 failed: another rank")));
}

TEST_F(SaveMonitorTest, RollbackForgetsFailuresOfLaterSteps) {
  trains(0, 1, 0);
  for (uint64_t step = 25; step <= 30; step += 5) fails(0, step, "EIO");
  EXPECT_EQ(lines().size(), 1u);
  trains(0, 2, 20);
  durable(0, 25);
  EXPECT_THAT(lines(), ElementsAre("checkpoints succeed again: step 25 is durable"));
}

TEST_F(SaveMonitorTest, LateStepsOfLostEpochAreNotUnsaved) {
  trains(0, 1, 0);
  trains(1, 1, 0);
  steps(0, 32);
  trains(0, 2, 20);
  steps(1, 33);
  add({.rank = 1, .epoch = 1, .step = 33}, SavingEvent{});
  fails(1, 30, "EIO");
  EXPECT_EQ(monitor_.unsaved().unsaved_text(), "");
  EXPECT_THAT(lines(), IsEmpty());
  trains(1, 2, 20);
  steps(1, 21);
  EXPECT_EQ(monitor_.unsaved().unsaved_text(), "step 21 is in no checkpoint");
}

TEST_F(SaveMonitorTest, PostponedCheckpointOpensAPeriod) {
  trains(0, 1, 0);
  steps(0, 10);
  add({.rank = 0, .epoch = 1, .step = 10}, PostponedEvent{});
  ASSERT_EQ(monitor_.unsaved().periods(now_ns_).size(), 1u);
  EXPECT_EQ(monitor_.unsaved().periods(now_ns_)[0].cause, "ckptd at /s does not answer");
}

TEST_F(SaveMonitorTest, LateEventsDoNotUndoSavedStep) {
  trains(0, 1, 0);
  steps(0, 5);
  durable(0, 5);
  trains(1, 1, 0);
  EXPECT_EQ(monitor_.unsaved().saved_step(), 5u);
}

}  // namespace
}  // namespace moetrain
