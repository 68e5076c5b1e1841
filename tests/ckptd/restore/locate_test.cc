// Restores by a client that reads segments itself: the places that it is given, and the fallback
// for fragments that it cannot read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "ckptd/limits.h"
#include "tests/ckptd/restore/restore_store.h"

namespace ckptd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class LocateTest : public testing::Test {
 protected:
  LocateTest() : store(restore_units()) { store.client.locate_bytes_max = kRestoreSlabBytes; }
  // Byte `at` of the unit's version rots.
  void flip(ckpt::UnitId unit, ViewPoint point, uint64_t at) {
    const auto version = store.catalog.newest_version(kTestRun, unit, point, std::nullopt);
    for (const FragmentPlace& place : version->fragments) {
      if (at < place.offset || at >= place.offset + place.length) continue;
      store.disk.flip(segment_path(place.segment), place.payload_offset + (at - place.offset));
    }
  }
  uint64_t all_bytes() const {
    uint64_t bytes = 0;
    for (const ckpt::UnitRange& unit : store.whole_units()) bytes += unit.length;
    return bytes;
  }
  RestoreStore store;
};

TEST_F(LocateTest, LocatesFragmentsInSegments) {
  store.commit_all({1, 5});
  const Restored cached = store.restore_all({1, 5});
  store.expect_true(cached, store.whole_units());
  EXPECT_EQ(cached.located_windows, 0u) << "memory is faster";
  store.forget_memory();
  const Restored read = store.restore_all({1, 5});
  store.expect_true(read, store.whole_units());
  EXPECT_EQ(read.bytes_located, all_bytes());
  EXPECT_TRUE(read.bytes.empty());
  EXPECT_GT(read.located_windows, 1u);
  EXPECT_TRUE(read.notes.empty());
}

// Any layout, windows of any size, answers in any order, fragments that fail at random, random bit
// rot: every want is whole, and of the version that is reported for it.
TEST_F(LocateTest, RestoresEveryByteUnderRandomFailures) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    RestoreStore any(restore_units(), seed);
    any.client.answer_order.seed(seed);
    any.commit_all({1, 5}, 1 + random() % 20'000 + 500);
    any.commit_all({1, 6}, 1 + random() % 60'000 + 500);
    any.commit({1, 7}, {0, 2}, 1 + random() % 60'000 + 500);
    if (random() % 4 != 0) any.forget_memory();
    any.client.locate_bytes_max = (1 + random() % 20) * ckpt::kBlockBytes;
    const uint64_t failing = random() % 4;
    any.client.fails_to_read = [&random, failing](const Located&, size_t, LocatedAnswer& answer) {
      if (failing == 3 && random() % 8 == 0) answer.stop = true;
      if (failing == 2 && random() % 8 == 0) answer.failed.push_back(1 << 20);
      return answer.stop || (failing != 0 && random() % 3 == 0);
    };
    if (random() % 2 == 0) {
      const auto version = any.catalog.newest_version(kTestRun, 0, {1, 7}, std::nullopt);
      const FragmentPlace& place = version->fragments[random() % version->fragments.size()];
      any.disk.flip(segment_path(place.segment), place.payload_offset + random() % place.length);
    }
    std::vector<ckpt::UnitRange> wants = any.whole_units();
    for (int i = 0; i < 6; ++i) {
      const auto unit = static_cast<ckpt::UnitId>(random() % any.units.size());
      const uint64_t from = random() % any.units[unit].bytes;
      wants.push_back({unit, from, random() % (any.units[unit].bytes - from + 1)});
    }
    std::shuffle(wants.begin(), wants.end(), random);
    any.expect_true(any.restore({1, 7}, wants), wants);
  }
}

TEST_F(LocateTest, DaemonReadsFragmentsThatTheClientCannot) {
  store.commit_all({1, 5});
  store.forget_memory();
  store.client.fails_to_read = [](const Located& located, size_t fragment, LocatedAnswer&) {
    return located.number == 1 && fragment == 0;
  };
  const Restored restored = store.restore_all({1, 5});
  store.expect_true(restored, store.whole_units());
  EXPECT_THAT(restored.notes, ElementsAre("unit " + store.units[0].name +
                                          ": read by ckptd instead of the client: no light"));
  EXPECT_EQ(restored.served_by[0].step, 5u);
  EXPECT_EQ(restored.bytes.at(SourceId::kSegment), 10'000u);
  EXPECT_EQ(restored.bytes_located, all_bytes() - 10'000);
}

TEST_F(LocateTest, DamageFallsBackToLocatedOlderVersion) {
  store.commit_all({1, 20});
  store.commit_all({1, 25});
  store.forget_memory();
  flip(0, {1, 25}, 55'000);
  const Restored restored = store.restore_all({1, 25});
  store.expect_true(restored, store.whole_units());
  EXPECT_EQ(restored.served_by[0].step, 20u);
  EXPECT_EQ(restored.served_by[1].step, 25u);
  EXPECT_THAT(restored.notes.back(), HasSubstr("step 20 instead of 25: segment 1 offset"));
  EXPECT_EQ(restored.bytes.count(SourceId::kSegment), 0u) << "nothing of 25 was good enough";
  const Restored exact = store.restore_all({1, 25}, true);
  ASSERT_TRUE(exact.error.has_value());
  EXPECT_THAT(exact.error->message, testing::Not(HasSubstr("no older version")));
}

TEST_F(LocateTest, ClientThatStopsGetsRemainingBytesInSlabs) {
  store.commit_all({1, 5}, 65'000);  // as large as a slab: cut once they come in one
  store.forget_memory();
  store.client.locate_bytes_max = 2 * kRestoreSlabBytes;
  store.client.fails_to_read = [](const Located& located, size_t, LocatedAnswer& answer) {
    answer.stop = located.number == 2;
    return answer.stop;
  };
  const Restored restored = store.restore_all({1, 5});
  store.expect_true(restored, store.whole_units());
  EXPECT_TRUE(restored.notes.empty()) << "nothing is wrong with the state";
  EXPECT_GT(restored.bytes.at(SourceId::kSegment), 0u);
}

TEST_F(LocateTest, FragmentLargerThanWindowComesInSlab) {
  store.commit_all({1, 5}, 30'000);
  store.forget_memory();
  store.client.locate_bytes_max = 3 * ckpt::kBlockBytes;
  const Restored restored = store.restore_all({1, 5});
  store.expect_true(restored, store.whole_units());
  EXPECT_EQ(restored.bytes.at(SourceId::kSegment) + restored.bytes_located, all_bytes());
  EXPECT_GE(restored.bytes.at(SourceId::kSegment), 120'000u);
  EXPECT_GT(restored.bytes_located, 0u);
}

TEST_F(LocateTest, OpenWindowsOfClientAreBounded) {
  store.commit_all({1, 5}, 3000);
  store.forget_memory();
  store.client.locate_bytes_max = 2 * ckpt::kBlockBytes;
  const Restored restored = store.restore_all({1, 5});
  store.expect_true(restored, store.whole_units());
  EXPECT_GT(restored.located_windows, 2 * limits::kLocatedWindowsMax);
  EXPECT_EQ(store.client.located_at_once, limits::kLocatedWindowsMax);
}

TEST_F(LocateTest, MissingSegmentFailsWithoutOlderVersion) {
  store.commit_all({1, 5});
  store.forget_memory();
  ASSERT_TRUE(store.disk.remove(segment_path(1)).ok());
  const Restored restored = store.restore_all({1, 5});
  ASSERT_TRUE(restored.error.has_value());
  EXPECT_THAT(restored.error->message, HasSubstr("; the view has no older version of it"));
}

// A client may disconnect while it holds windows.
TEST_F(LocateTest, ClosesWithUnansweredWindows) {
  store.commit_all({1, 5});
  store.forget_memory();
  store.client.forget_answers = true;
  const Restored restored = store.restore_all({1, 5});
  EXPECT_FALSE(restored.last);
  EXPECT_GT(restored.located_windows, 0u);
}

}  // namespace
}  // namespace ckptd
