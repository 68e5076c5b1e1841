#include "trainer/rank/snapshot_stall.h"

#include <gtest/gtest.h>

namespace moetrain {
namespace {

TEST(SnapshotStallTest, AddsDifferenceOfCounters) {
  SnapshotStall stall;
  stall.add({.room_ms = 5, .slabs_ms = 7, .open = 1}, {.room_ms = 15, .slabs_ms = 8, .open = 2}, 0);
  stall.add({}, {.room_ms = 1, .slabs_ms = 2, .open = 3}, 0);
  EXPECT_EQ(stall.waits.room_ms, 11);
  EXPECT_EQ(stall.waits.slabs_ms, 3);
  EXPECT_EQ(stall.waits.open, 3u);
}

TEST(SnapshotStallTest, DaemonSilenceIsSubtractedFromWaits) {
  SnapshotStall stall;
  stall.add({}, {.room_ms = 100, .slabs_ms = 30}, /*silence_ms=*/50);
  EXPECT_EQ(stall.waits.slabs_ms, 0);
  EXPECT_EQ(stall.waits.room_ms, 80);
}

TEST(SnapshotStallTest, SilenceLongerThanWaitsLeavesZero) {
  SnapshotStall stall;
  stall.add({}, {.room_ms = 10, .slabs_ms = 20}, /*silence_ms=*/1'000);
  EXPECT_EQ(stall.waits.slabs_ms, 0);
  EXPECT_EQ(stall.waits.room_ms, 0);
}

class StallClockTest : public testing::Test {
 protected:
  using Blocked = StallClock::Blocked;
  void pass(int64_t ms) { now_ += std::chrono::milliseconds(ms); }

  StallClock::Time now_{};
  StallClock clock_{[this] { return now_; }};
};

TEST_F(StallClockTest, SumsStepsAndSnapshotsAlike) {
  {
    const Blocked plan(clock_, 7);
    pass(3);
  }
  pass(100);  // training
  {
    const Blocked copy(clock_, 7);
    pass(5);
  }
  {
    const Blocked later(clock_, 9);
    pass(1);
  }
  EXPECT_EQ(clock_.take(7), 8);
  EXPECT_EQ(clock_.take(9), 1);
  EXPECT_EQ(clock_.take(7), 0) << "taken";
  EXPECT_EQ(clock_.take(), 9);
  EXPECT_EQ(clock_.take(), 0);
}

TEST_F(StallClockTest, NestedTimeCountsOnce) {
  {
    const Blocked overwrite(clock_);
    pass(2);
    const Blocked fill(clock_, 7);
    pass(5);
  }
  EXPECT_EQ(clock_.take(7), 5);
  EXPECT_EQ(clock_.take(), 7);
}

TEST_F(StallClockTest, DroppedSnapshotCountsInStepStall) {
  {
    const Blocked begin(clock_, 7);
    pass(4);
  }
  clock_.drop(7);
  EXPECT_EQ(clock_.take(7), 0);
  EXPECT_EQ(clock_.take(), 4);
}

TEST_F(StallClockTest, ResetForgetsAll) {
  {
    const Blocked begin(clock_, 7);
    pass(4);
  }
  clock_.reset();
  EXPECT_EQ(clock_.take(7), 0);
  EXPECT_EQ(clock_.take(), 0);
}

}  // namespace
}  // namespace moetrain
