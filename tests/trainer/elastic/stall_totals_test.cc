// The stall of each snapshot of a run, from what its ranks tell.
#include "trainer/elastic/stall_totals.h"

#include <gtest/gtest.h>

namespace moetrain {
namespace {

class StallTotalsTest : public testing::Test {
 protected:
  StallTotalsTest() { stalls_.trains(1, /*survivors_continue=*/false); }
  StallTotals stalls_;
};

TEST_F(StallTotalsTest, SlowestRankOfASnapshotCounts) {
  stalls_.settled(0, 1, 10, 3);
  stalls_.settled(1, 1, 10, 5);
  stalls_.settled(0, 1, 20, 4);
  EXPECT_EQ(stalls_.of(1, 10), 5);
  EXPECT_EQ(stalls_.total_ms(), 9);
  EXPECT_EQ(stalls_.longest_ms(), 5);
}

TEST_F(StallTotalsTest, StepAndSnapshotReportSameStall) {
  stalls_.stepped(0, 1, 11, 3);
  stalls_.settled(0, 1, 10, 3);
  EXPECT_EQ(stalls_.total_ms(), 3);
  stalls_.stepped(0, 1, 21, 2);  // dropped
  stalls_.settled(0, 1, 30, 4);  // after the last step
  EXPECT_EQ(stalls_.total_ms(), 3 + 2 + 4);
}

TEST_F(StallTotalsTest, AttemptsAtOneStepAddUp) {
  stalls_.settled(0, 1, 10, 3);
  stalls_.settled(0, 1, 10, 4);
  EXPECT_EQ(stalls_.of(1, 10), 7);
}

TEST_F(StallTotalsTest, RedoneStepStallsAgain) {
  stalls_.stepped(0, 1, 11, 3);
  stalls_.trains(2, /*survivors_continue=*/false);
  stalls_.stepped(0, 2, 11, 4);
  EXPECT_EQ(stalls_.total_ms(), 7);
}

// The step after the snapshot is done only in the next epoch, by ranks that kept their state.
TEST_F(StallTotalsTest, SurvivorStallAcrossEpochsCountsOnce) {
  stalls_.settled(0, 1, 10, 3);
  stalls_.trains(2, /*survivors_continue=*/true);
  stalls_.stepped(0, 2, 11, 3);
  EXPECT_EQ(stalls_.total_ms(), 3);
  EXPECT_EQ(stalls_.of(2, 10), 3);
}

}  // namespace
}  // namespace moetrain
