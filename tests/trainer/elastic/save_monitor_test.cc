// What people are told about checkpoints that fail, and about training that stands still for them.
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
using Kind = RankEvent::Kind;

constexpr uint64_t kOneSecondNs = 1'000'000'000;

class SaveMonitorTest : public testing::Test {
 protected:
  void fails(uint32_t rank, uint64_t step, const std::string& reason) {
    monitor_.add(
        {.kind = Kind::kSnapshot, .rank = rank, .time_ns = now_ns_, .step = step, .text = reason});
  }
  void durable(uint32_t rank, uint64_t step) {
    monitor_.add({.kind = Kind::kSnapshot,
                  .rank = rank,
                  .time_ns = now_ns_,
                  .step = step,
                  .durable = true,
                  .bytes = 12 << 20,
                  .durable_ms = 12'000});
  }
  void no_answer(uint32_t rank, uint64_t step) {
    monitor_.add({.kind = Kind::kSnapshot,
                  .rank = rank,
                  .time_ns = now_ns_,
                  .step = step,
                  .text = "ckptd at /s did not answer for 1000 ms",
                  .no_answer = true});
  }
  void trains(uint32_t rank, uint64_t epoch, uint64_t step) {
    monitor_.add(
        {.kind = Kind::kTraining, .rank = rank, .time_ns = now_ns_, .epoch = epoch, .step = step});
  }
  // All four ranks wait like this in the step, and everybody has told so.
  void stall(uint64_t step, RankEvent waits) {
    waits.kind = Kind::kStep;
    waits.time_ns = now_ns_;
    waits.step = step;
    for (waits.rank = 0; waits.rank < 4; ++waits.rank) monitor_.add(waits);
    now_ns_ += StallWatch::kGatherNs;
  }
  std::vector<std::string> lines() { return monitor_.look({}, now_ns_).lines; }

  SaveMonitor monitor_{{.socket = "/s"}};
  uint64_t now_ns_ = kOneSecondNs;
};

TEST(SnapshotCauseTest, NamesOfRunStepAndRankAreLeftOut) {
  EXPECT_EQ(snapshot_cause("run a step 5: the snapshot failed: run a step 5: the disk is full"),
            "the disk is full");
  EXPECT_EQ(snapshot_cause("run a step 5: rank 3 gave it up: run a step 5: no free slab"),
            "no free slab");
  EXPECT_EQ(snapshot_cause("rank 3: slab 4: bad"), "slab 4: bad");
  for (const char* plain : {"run out of slabs", "rank", "rank x: y", "step by step: z", ""}) {
    EXPECT_EQ(snapshot_cause(plain), plain);
  }
}

TEST_F(SaveMonitorTest, OneLineForACauseOfAllRanksAndSteps) {
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
  EXPECT_THAT(lines(), ElementsAre("checkpoints succeed again: step 35 is durable; 6 failed since "
                                   "step 5"));
  fails(0, 40, "EIO");
  EXPECT_THAT(lines(), ElementsAre("the checkpoint of step 40 failed: EIO")) << "it is back";
}

TEST_F(SaveMonitorTest, NumbersDoNotMakeACauseNew) {
  fails(0, 5,
        "disk full: /d (file system /): 2.7 MiB needed, 0 B available (1.5 MiB free; 3 B left)");
  fails(0, 6, "disk full: /d (file system /): 12 KiB needed, 1.5 GiB available (0 B free)");
  EXPECT_EQ(lines().size(), 1u);
}

TEST_F(SaveMonitorTest, CheckpointsOnTheirWayBeforeAFailureDoNotEndIt) {
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

TEST_F(SaveMonitorTest, FailureWithoutACauseIsToldAfterAWhile) {
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

TEST_F(SaveMonitorTest, MissingAnswerIsNoFailureOfItsOwn) {
  no_answer(0, 5);
  EXPECT_THAT(lines(), IsEmpty());
}

TEST_F(SaveMonitorTest, StallsAreToldWithCauseAndRemedy) {
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
  EXPECT_THAT(lines(), ElementsAre(AllOf(HasSubstr("no slab of the arena"), HasSubstr("--arena"),
                                         Not(HasSubstr("the disk is slow")))));
  now_ns_ += 500 * kOneSecondNs;
  stall(30, {.stall_ms = 5'000, .slabs_ms = 100});
  EXPECT_THAT(lines(), IsEmpty()) << "a copy is work, not a wait";
}

TEST_F(SaveMonitorTest, MemoryThatIsNotReadyIsNoArenaThatIsTooSmall) {
  stall(5, {.slabs_ms = 2'000});
  EXPECT_THAT(lines(),
              ElementsAre(AllOf(HasSubstr("memory was not ready"), HasSubstr("--warm-pool"),
                                Not(HasSubstr("larger --arena")))));
}

TEST_F(SaveMonitorTest, SlowestRankOfAStepCounts) {
  for (uint32_t rank = 0; rank < 4; ++rank) {
    monitor_.add({.kind = Kind::kStep,
                  .rank = rank,
                  .time_ns = now_ns_,
                  .step = 10,
                  .slabs_ms = 1'000.0 * (rank + 1)});
    EXPECT_THAT(lines(), IsEmpty()) << "others may have waited longer";
  }
  now_ns_ += StallWatch::kGatherNs;
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("step 10: training stood still for 4.0 s")));
}

TEST_F(SaveMonitorTest, SilenceTowardsAnotherRankIsNoFailureOfItsOwn) {
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

TEST_F(SaveMonitorTest, StepsOfALostEpochReadLateAreNotUnsaved) {
  trains(0, 1, 0);
  trains(1, 1, 0);
  monitor_.add({.kind = Kind::kStep, .rank = 0, .time_ns = now_ns_, .step = 32});
  trains(0, 2, 20);
  monitor_.add({.kind = Kind::kStep, .rank = 1, .time_ns = now_ns_, .step = 33});
  monitor_.add({.kind = Kind::kSaving, .rank = 1, .time_ns = now_ns_, .epoch = 1, .step = 33});
  monitor_.add({.kind = Kind::kSnapshot, .rank = 1, .time_ns = now_ns_, .step = 30, .text = "EIO"});
  EXPECT_EQ(monitor_.unsaved().unsaved_text(), "");
  EXPECT_THAT(lines(), IsEmpty());
  trains(1, 2, 20);
  monitor_.add({.kind = Kind::kStep, .rank = 1, .time_ns = now_ns_, .step = 21});
  EXPECT_EQ(monitor_.unsaved().unsaved_text(), "step 21 is in no checkpoint");
}

TEST_F(SaveMonitorTest, PostponedCheckpointOpensAPeriod) {
  trains(0, 1, 0);
  monitor_.add({.kind = Kind::kStep, .rank = 0, .time_ns = now_ns_, .step = 10});
  monitor_.add({.kind = Kind::kPostponed, .rank = 0, .time_ns = now_ns_, .epoch = 1, .step = 10});
  ASSERT_EQ(monitor_.unsaved().periods(now_ns_).size(), 1u);
  EXPECT_EQ(monitor_.unsaved().periods(now_ns_)[0].cause, "ckptd at /s does not answer");
}

TEST_F(SaveMonitorTest, EventsOfAnEpochReadLateDoNotUndoWhatIsSaved) {
  monitor_.add({.kind = Kind::kTraining, .rank = 0, .time_ns = now_ns_, .epoch = 1});
  monitor_.add({.kind = Kind::kStep, .rank = 0, .time_ns = now_ns_, .step = 5});
  durable(0, 5);
  monitor_.add({.kind = Kind::kTraining, .rank = 1, .time_ns = now_ns_, .epoch = 1});
  EXPECT_EQ(monitor_.unsaved().saved_step(), 5u);
}

}  // namespace
}  // namespace moetrain
