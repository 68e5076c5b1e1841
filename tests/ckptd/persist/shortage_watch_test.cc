// A full disk is reported until every run that found it full has room again.
#include "ckptd/persist/shortage_watch.h"

#include <gtest/gtest.h>

namespace ckptd {
namespace {

constexpr ckpt::SnapshotKey kSmall{.run = 1, .step = 5};
constexpr ckpt::SnapshotKey kLarge{.run = 2, .step = 5};

ckpt::SnapshotKey at(ckpt::SnapshotKey snapshot, ckpt::Step step) {
  snapshot.step = step;
  return snapshot;
}

DiskRoom with_free(uint64_t bytes) {
  DiskRoom room;
  room.space.free_bytes = bytes;
  room.space.total_bytes = 1000;
  return room;
}

DiskShortage space_of(uint64_t needed) { return {.room = {}, .needed_bytes = needed}; }

class ShortageWatchTest : public ::testing::Test {
 protected:
  // The need that is told; nullopt: there is room.
  std::optional<uint64_t> needed(uint64_t free_bytes, uint64_t journal_bytes = 100) {
    const auto shortage = watch.now(
        with_free(free_bytes), [journal_bytes](uint64_t bytes) { return journal_bytes < bytes; });
    if (!shortage) return std::nullopt;
    return shortage->needed_bytes;
  }
  ShortageWatch watch;
};

TEST_F(ShortageWatchTest, LargestNeedOfAllRunsDecides) {
  EXPECT_EQ(needed(10), std::nullopt);
  watch.note(kLarge, space_of(50));
  watch.note(kSmall, space_of(20));
  EXPECT_EQ(needed(10), 50u);
  EXPECT_EQ(needed(30), 50u) << "the larger run would fail at once";
  EXPECT_EQ(needed(50), std::nullopt);
  EXPECT_EQ(needed(10), std::nullopt) << "both had room";
  EXPECT_EQ(watch.count(), 2u);
}

TEST_F(ShortageWatchTest, LaterDurableSnapshotEndsShortageOfRun) {
  watch.note(kLarge, space_of(50));
  watch.found_room(at(kSmall, 6));
  EXPECT_EQ(needed(10), 50u);
  watch.found_room(at(kLarge, 4));
  EXPECT_EQ(needed(10), 50u) << "it had its room before the other found none";
  watch.found_room(at(kLarge, 6));
  EXPECT_EQ(needed(10), std::nullopt);
}

TEST_F(ShortageWatchTest, LatestSnapshotDecidesWithItsWholeNeed) {
  watch.note(at(kLarge, 6), space_of(50));
  watch.note(at(kLarge, 6), space_of(1));  // another piece of it
  EXPECT_EQ(needed(10), 50u);
  watch.note(at(kLarge, 5), space_of(20));  // in flight when step 6 was refused
  EXPECT_EQ(needed(30), 50u);
  watch.note(at(kLarge, 7), space_of(20));
  EXPECT_EQ(needed(30), std::nullopt) << "a later one may be smaller";
}

TEST_F(ShortageWatchTest, ForgottenRunNeedsNoSpace) {
  watch.note(kLarge, space_of(50));
  watch.note(kSmall, space_of(20));
  watch.forget(kLarge.run);
  EXPECT_EQ(needed(10), 20u);
  watch.forget();
  EXPECT_EQ(needed(10), std::nullopt);
}

TEST_F(ShortageWatchTest, NoSpaceAtAllIsAShortage) {
  EXPECT_EQ(needed(0), 0u);
  EXPECT_EQ(needed(1), std::nullopt);
}

TEST_F(ShortageWatchTest, JournalNeedIsCheckedSeparately) {
  watch.note(kSmall, {.room = {}, .needed_bytes = 200, .of_journal = true});
  watch.note(kLarge, space_of(50));
  EXPECT_EQ(needed(60, 100), 200u);
  EXPECT_EQ(needed(60, 200), std::nullopt);
  EXPECT_EQ(needed(60, 100), std::nullopt) << "it had room";
}

}  // namespace
}  // namespace ckptd
