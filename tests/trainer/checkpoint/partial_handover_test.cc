// A group continues with other members: a joining rank plans the same snapshots as the survivors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/partial_history.h"

namespace moetrain {
namespace {

class PartialHandoverTest : public testing::Test {
 protected:
  PartialHandoverTest() {
    for (int i = 0; i < 5; ++i) {
      history_.snapshot(false, false);
      history_.step();
    }
  }
  PartialCheckpoint::Plan next(PartialCheckpoint& partial) {
    ExpertStamps stamps(kGrid);
    return partial.next(history_.now(), {history_.routed(), history_.routed()}, false, stamps);
  }

  const PartialOptions options_{.k = 1, .k_snapshot = 2, .plt_budget = 1};
  History history_{options_, 7};
  PartialCheckpoint joiner_{history_.units(), history_.placement(), options_};
};

TEST_F(PartialHandoverTest, SurvivorAndJoinerPlanSameSnapshots) {
  const PartialHandover handover = history_.partial().handover();
  EXPECT_NE(handover.saved, handover.kept) << "memory has fresher ones";
  for (PartialCheckpoint* one : {&history_.partial(), &joiner_}) {
    ASSERT_TRUE(one->take_over(handover, history_.routed()).ok());
    EXPECT_EQ(one->handover(), handover);
  }
  for (int i = 0; i < 4; ++i) {
    const auto ours = next(history_.partial());
    const auto theirs = next(joiner_);
    EXPECT_EQ(theirs.experts, ours.experts);
    EXPECT_THAT(ours.memory_experts, testing::SizeIs(kLayers));
    EXPECT_EQ(theirs.memory_experts, ours.memory_experts);
    history_.step();
  }
}

TEST_F(PartialHandoverTest, FailureOfPendingSnapshotSavesAllExpertsAgain) {
  const uint64_t pending_step = history_.now();
  const auto taken = history_.snapshot(false, true);
  const PartialHandover handover = history_.partial().handover();
  EXPECT_EQ(handover.recent.back().step, pending_step);
  history_.step();
  for (PartialCheckpoint* one : {&history_.partial(), &joiner_}) {
    ASSERT_TRUE(one->take_over(handover, history_.routed()).ok());
    EXPECT_TRUE(one->tracks_step(pending_step));
  }
  // The experts of a pending snapshot count as saved until it fails.
  PartialCheckpoint third(history_.units(), history_.placement(), options_);
  ASSERT_TRUE(third.take_over(handover, history_.routed()).ok());
  EXPECT_THAT(next(third).experts, testing::SizeIs(kLayers));
  for (PartialCheckpoint* one : {&history_.partial(), &joiner_}) {
    one->failed(pending_step);
    one->failed(pending_step);  // reported again by another rank
    EXPECT_FALSE(one->tracks_step(pending_step));
  }
  EXPECT_EQ(joiner_.handover(), history_.partial().handover());
  // The handover does not contain their older versions, so all experts are saved again.
  EXPECT_THAT(next(joiner_).experts, testing::SizeIs(kGrid.size()));
  ASSERT_THAT(taken.experts, testing::SizeIs(kLayers));
  EXPECT_EQ(handover.saved[taken.experts[0]].step, pending_step);
}

TEST_F(PartialHandoverTest, RefusesHandoverOfOtherModel) {
  const PartialHandover before = joiner_.handover();
  for (auto list : {&PartialHandover::saved, &PartialHandover::kept}) {
    PartialHandover cut = history_.partial().handover();
    (cut.*list).pop_back();
    EXPECT_EQ(joiner_.take_over(cut, history_.routed()).error().code, ckpt::ErrorCode::kCorrupt);
  }
  PartialHandover cut = history_.partial().handover();
  cut.routed_before.pop_back();
  EXPECT_EQ(joiner_.take_over(cut, history_.routed()).error().code, ckpt::ErrorCode::kCorrupt);
  EXPECT_EQ(joiner_.handover(), before);
}

}  // namespace
}  // namespace moetrain
