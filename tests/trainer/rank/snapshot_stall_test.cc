#include "trainer/rank/snapshot_stall.h"

#include <gtest/gtest.h>

namespace moetrain {
namespace {

TEST(SnapshotStallTest, AddsWhatCameSince) {
  SnapshotStall stall;
  stall.add({.room_ms = 5, .slabs_ms = 7, .open = 1}, {.room_ms = 15, .slabs_ms = 8, .open = 2}, 0);
  stall.add({}, {.room_ms = 1, .slabs_ms = 2, .open = 3}, 0);
  EXPECT_EQ(stall.waits.room_ms, 11);
  EXPECT_EQ(stall.waits.slabs_ms, 3);
  EXPECT_EQ(stall.waits.open, 3u);
}

TEST(SnapshotStallTest, SilenceOfTheDaemonIsNoWaitForSlabsOrDisk) {
  SnapshotStall stall;
  stall.add({}, {.room_ms = 100, .slabs_ms = 30}, /*silence_ms=*/50);
  EXPECT_EQ(stall.waits.slabs_ms, 0);
  EXPECT_EQ(stall.waits.room_ms, 80);
}

TEST(SnapshotStallTest, LongerSilenceThanWaitsLeavesNone) {
  SnapshotStall stall;
  stall.add({}, {.room_ms = 10, .slabs_ms = 20}, /*silence_ms=*/1'000);
  EXPECT_EQ(stall.waits.slabs_ms, 0);
  EXPECT_EQ(stall.waits.room_ms, 0);
}

}  // namespace
}  // namespace moetrain
