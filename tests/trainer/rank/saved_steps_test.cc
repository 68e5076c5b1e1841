#include "trainer/rank/saved_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

namespace moetrain {
namespace {

// One rank that plans snapshots without a daemon.
class SavedStepsTest : public testing::Test {
 protected:
  SavedStepsTest() {
    config_.layers = 1;
    config_.experts = 2;
    units_ = state_units(config_);
    placement_ = *static_placement(config_.layers, config_.experts, 1);
    partial_ = std::make_unique<PartialCheckpoint>(units_, placement_, PartialOptions{});
    partial_->start();
    saved_ = std::make_unique<SavedSteps>(*partial_, progress_);
  }
  // The rank hands over its part of the snapshot of this step.
  void take(uint64_t step) {
    progress_.step = step;
    ExpertStamps stamps({config_.layers, config_.experts});
    const std::vector<int64_t> counts(config_.experts, static_cast<int64_t>(step));
    (void)partial_->next(step, {counts, counts}, /*full=*/true, stamps);
    saved_->taken();
  }
  // A boundary at which all ranks report the same as this rank.
  Boundary meet() {
    Boundary boundary;
    saved_->fill(boundary);
    saved_->apply_boundary(boundary);
    return boundary;
  }

  ModelConfig config_;
  std::vector<StateUnit> units_;
  ComputePlacement placement_;
  std::unique_ptr<PartialCheckpoint> partial_;
  Progress progress_;
  std::unique_ptr<SavedSteps> saved_;
};

TEST_F(SavedStepsTest, FailureMakesTheStepUnsavedOnce) {
  take(10);
  EXPECT_TRUE(saved_->current_is_saved());
  saved_->failed(/*unanswered=*/true);
  const Boundary boundary = meet();
  EXPECT_EQ(boundary.failed_snapshot, 10u);
  EXPECT_TRUE(boundary.retake);
  EXPECT_FALSE(saved_->current_is_saved());
  EXPECT_FALSE(partial_->tracks_step(10));
  EXPECT_EQ(meet(), Boundary{}) << "the others know it";
}

TEST_F(SavedStepsTest, FailureOfOlderSnapshotKeepsNewerSaved) {
  take(10);
  take(20);
  saved_->lost({10});
  EXPECT_EQ(meet().lost_snapshot, 10u);
  EXPECT_EQ(saved_->newest(), 20u);
  EXPECT_FALSE(partial_->tracks_step(10));
}

TEST_F(SavedStepsTest, FailureOnAnotherRankCounts) {
  take(10);
  saved_->apply_boundary({.failed_snapshot = 10});
  EXPECT_EQ(saved_->newest(), 0u);
  EXPECT_FALSE(partial_->tracks_step(10));
}

TEST_F(SavedStepsTest, RestoredStepIsSavedAndForgetsFailures) {
  take(10);
  saved_->failed(/*unanswered=*/false);
  saved_->begin_epoch(/*survivors_continue=*/false);
  progress_.step = 5;
  saved_->resumed();
  EXPECT_TRUE(saved_->current_is_saved());
  EXPECT_FALSE(saved_->saved_before()) << "a restart may commit the step again";
  EXPECT_EQ(meet(), Boundary{});
}

TEST_F(SavedStepsTest, SurvivorsReportFailedSnapshotsAgain) {
  take(10);
  take(20);
  saved_->lost({20});
  saved_->begin_epoch(/*survivors_continue=*/true);
  EXPECT_EQ(saved_->newest(), 0u);
  // The rank whose state all adopt counts the snapshot as saved; another rank does not know it.
  take(20);
  saved_->lost({15});
  saved_->agreed(20);
  saved_->lineage_continued();
  EXPECT_TRUE(saved_->saved_before());
  EXPECT_EQ(meet().lost_snapshot, 20u);
  EXPECT_FALSE(saved_->saved_before());
}

TEST_F(SavedStepsTest, LostLastStepIsSavedAgain) {
  take(10);
  saved_->agreed(10);
  saved_->lineage_continued();
  saved_->lost({10});
  EXPECT_TRUE(saved_->current_is_lost());
  saved_->retry_save();
  EXPECT_FALSE(saved_->current_is_lost());
  EXPECT_FALSE(saved_->saved_before());
  EXPECT_FALSE(partial_->tracks_step(10));
}

TEST_F(SavedStepsTest, DroppedSnapshotIsDueAgain) {
  take(10);
  saved_->dropped();
  saved_->not_filled();
  EXPECT_FALSE(partial_->tracks_step(10));
  EXPECT_FALSE(saved_->current_is_saved());
}

}  // namespace
}  // namespace moetrain
