// Restores end to end: state is saved through persist, damaged on disk and restored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <random>

#include "tests/ckptd/restore/restore_store.h"

namespace ckptd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

uint64_t base_seed() {
  return static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
}

// File and offset of byte `at` of the unit's version on disk.
std::pair<std::string, uint64_t> place_of(const RestoreStore& store, ckpt::UnitId unit,
                                          ViewPoint point, uint64_t at) {
  const auto version = store.catalog.newest_version(kTestRun, unit, point, std::nullopt);
  for (const FragmentPlace& place : version->fragments) {
    if (at < place.offset || at >= place.offset + place.length) continue;
    return {segment_path(place.segment), place.payload_offset + (at - place.offset)};
  }
  ADD_FAILURE() << "no fragment holds byte " << at;
  return {};
}
void flip(RestoreStore& store, ckpt::UnitId unit, ViewPoint point, uint64_t at) {
  const auto [path, offset] = place_of(store, unit, point, at);
  store.disk.flip(path, offset);
}

TEST(RestoreJobTest, RestoresEveryByteFromMemoryAndDisk) {
  RestoreStore store(restore_units());
  store.commit_all({1, 5});
  const Restored cached = store.restore_all({1, 5});
  store.expect_true(cached, store.whole_units());
  EXPECT_EQ(cached.bytes.count(SourceId::kSegment), 0u);
  store.forget_memory();
  const Restored read = store.restore_all({1, 5});
  store.expect_true(read, store.whole_units());
  EXPECT_EQ(read.bytes.count(SourceId::kMemory), 0u);
  EXPECT_GT(read.windows, 1u);
  EXPECT_TRUE(read.notes.empty());
}

// Any layout: the ranges of any number of ranks, cut anywhere, overlapping or not.
TEST(RestoreJobTest, RestoresAnyRangesOfAnyLayout) {
  for (uint64_t round = 0; round < 12; ++round) {
    const uint64_t seed = base_seed() * 100 + round;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    RestoreStore store(restore_units(), seed);
    store.commit_all({1, 5}, 1 + random() % 20'000 + 500);
    store.commit({1, 7}, {0, 2}, 1 + random() % 60'000 + 500);
    if (random() % 2 == 0) store.forget_memory();
    const uint64_t ranks = 1 + random() % 7;
    for (uint64_t rank = 0; rank < ranks; ++rank) {
      std::vector<ckpt::UnitRange> wants;
      for (ckpt::UnitId unit = 0; unit < store.units.size(); ++unit) {
        const uint64_t bytes = store.units[unit].bytes;
        const uint64_t begin = bytes * rank / ranks;
        wants.push_back({unit, begin, bytes * (rank + 1) / ranks - begin});
        const uint64_t from = random() % bytes;
        wants.push_back({unit, from, random() % (bytes - from + 1)});
      }
      std::shuffle(wants.begin(), wants.end(), random);
      store.expect_true(store.restore({1, 8}, wants), wants);
    }
  }
}

TEST(RestoreJobTest, FlippedByteFallsBackToWholeOlderVersion) {
  RestoreStore store(restore_units());
  store.commit_all({1, 20});
  store.commit_all({1, 25});
  store.forget_memory();
  flip(store, 0, {1, 25}, 55'000);
  const Restored restored = store.restore_all({1, 25});
  store.expect_true(restored, store.whole_units());
  EXPECT_EQ(restored.served_by[0].step, 20u);
  EXPECT_EQ(restored.served_by[1].step, 25u);
  const auto [path, offset] = place_of(store, 0, {1, 25}, 50'000);
  EXPECT_THAT(restored.notes,
              ElementsAre(fmt::format("unit {}: step 20 instead of 25: segment 1 offset {}: "
                                      "CRC32C mismatch",
                                      store.units[0].name, offset)));
}

TEST(RestoreJobTest, WantsOfOneUnitFallBackTogether) {
  RestoreStore store(restore_units());
  store.commit_all({1, 20});
  store.commit_all({1, 25});
  store.forget_memory();
  flip(store, 0, {1, 25}, 99'999);
  const std::vector<ckpt::UnitRange> wants = {{0, 0, 100}, {1, 0, 30'000}, {0, 95'000, 5'000}};
  const Restored restored = store.restore({1, 25}, wants);
  store.expect_true(restored, wants);
  EXPECT_EQ(restored.served_by[0].step, 20u);
  EXPECT_EQ(restored.served_by[1].step, 25u);
  EXPECT_EQ(restored.served_by[2].step, 20u);
}

TEST(RestoreJobTest, FallsBackUntilIntactVersion) {
  RestoreStore store(restore_units());
  for (const ckpt::Step step : {10, 15, 20, 25}) {
    store.commit_all({1, step});
    store.forget_memory();
  }
  flip(store, 1, {1, 25}, 3);
  flip(store, 1, {1, 20}, 29'000);
  const Restored restored = store.restore_all({1, 25});
  store.expect_true(restored, store.whole_units());
  EXPECT_EQ(restored.served_by[1].step, 15u);
  EXPECT_THAT(restored.notes.back(), HasSubstr("step 15 instead of 25: segment"));
}

TEST(RestoreJobTest, DamageWithoutFallbackNamesTheUnit) {
  RestoreStore store(restore_units());
  store.commit_all({1, 20});
  store.commit_all({1, 25});
  store.forget_memory();
  flip(store, 0, {1, 25}, 7);
  const Restored exact = store.restore_all({1, 25}, true);
  ASSERT_TRUE(exact.error.has_value());
  EXPECT_EQ(exact.error->code, ckpt::ErrorCode::kCorrupt);
  EXPECT_THAT(exact.error->message, HasSubstr("run tiny step 25 unit " + store.units[0].name));
  EXPECT_THAT(exact.error->message, HasSubstr("CRC32C mismatch"));
  flip(store, 0, {1, 20}, 7);
  const Restored none = store.restore_all({1, 25});
  ASSERT_TRUE(none.error.has_value());
  EXPECT_THAT(none.error->message, HasSubstr("; the view has no older version of it"));
}

TEST(RestoreJobTest, CorruptMemoryIsServedFromTheSegment) {
  RestoreStore store(restore_units());
  store.commit_all({1, 20});
  const auto lease = store.staging.find_cached(kRestoreUid, store.key({1, 20}), 1, 0, 10'000);
  ASSERT_TRUE(lease.has_value());
  // The trainer writes into a slab that it gave away long ago.
  const auto* at = lease->bytes.data();
  *const_cast<std::byte*>(at) ^= std::byte{1};
  const Restored restored = store.restore_all({1, 20});
  store.expect_true(restored, store.whole_units());
  EXPECT_EQ(restored.served_by[1].step, 20u);
  EXPECT_THAT(restored.notes, ElementsAre("unit " + store.units[1].name +
                                          ": segment instead of memory: CRC32C mismatch"));
  EXPECT_EQ(restored.bytes.at(SourceId::kSegment), 10'000u);
}

TEST(RestoreJobTest, ReadErrorWithoutOlderVersionFails) {
  RestoreStore store(restore_units());
  store.commit_all({1, 20});
  store.forget_memory();
  store.disk.set_faults({.path_prefix = "segments/", .fail_nth_read = 2});
  const Restored restored = store.restore_all({1, 20});
  ASSERT_TRUE(restored.error.has_value());
  EXPECT_THAT(restored.error->message, HasSubstr("; the view has no older version of it"));
  EXPECT_THAT(restored.error->message, HasSubstr("segment 1 offset"));
  store.expect_true(store.restore_all({1, 20}), store.whole_units());
}

TEST(RestoreJobTest, RefusedReadDoesNotFallBack) {
  RestoreStore store(restore_units());
  store.commit_all({1, 20});
  store.commit_all({1, 25});
  store.forget_memory();
  for (const bool on_open : {true, false}) {
    MemoryFaults faults{.path_prefix = "segments/", .refusal = EMFILE};
    (on_open ? faults.refused_open : faults.refused_read) = 1;
    store.disk.set_faults(faults);
    const Restored restored = store.restore_all({1, 25});
    store.disk.set_faults({});
    ASSERT_TRUE(restored.error.has_value());
    EXPECT_EQ(restored.error->code, ckpt::ErrorCode::kUnavailable);
    EXPECT_THAT(restored.error->message, HasSubstr("could not be read"));
    EXPECT_THAT(restored.notes, testing::IsEmpty());
    store.expect_true(store.restore_all({1, 25}), store.whole_units());
  }
}

TEST(RestoreJobTest, NoteNamesDamageOfMarkedCommit) {
  RestoreStore store(restore_units());
  store.commit_all({1, 20});
  store.commit_all({1, 25});
  store.apply(commit_damaged({1, 25}, "unit trainer: segment 1 offset 4096: checksum"));
  const Restored restored = store.restore({1, 25}, {{0, 0, 50}});
  store.expect_true(restored, {{0, 0, 50}});
  EXPECT_THAT(
      restored.notes,
      ElementsAre("unit " + store.units[0].name +
                  ": step 20 instead of 25: unit trainer: segment 1 offset 4096: checksum"));
  const Restored exact = store.restore({1, 25}, {{0, 0, 50}}, true);
  ASSERT_TRUE(exact.error.has_value());
  EXPECT_EQ(exact.error->code, ckpt::ErrorCode::kCorrupt);
}

// A session may have smaller slabs than the one that saved.
TEST(RestoreJobTest, FragmentLargerThanSlabComesInSlices) {
  auto units = restore_units();
  RestoreStore store(units);
  store.commit_all({1, 20}, 65'000);
  store.commit_all({1, 25}, 65'000);
  store.expect_true(store.restore_all({1, 25}), store.whole_units());  // out of memory
  auto lease = store.staging.find_cached(kRestoreUid, store.key({1, 25}), 0, 0, 65'000);
  const_cast<std::byte&>(lease->bytes[64'999]) ^= std::byte{1};
  lease.reset();
  const Restored spoilt = store.restore_all({1, 25});
  store.expect_true(spoilt, store.whole_units());
  EXPECT_EQ(spoilt.served_by[0].step, 25u);
  EXPECT_EQ(spoilt.notes.size(), 1u);
  store.forget_memory();
  const Restored restored = store.restore_all({1, 25});
  store.expect_true(restored, store.whole_units());
  // 65,000 bytes do not fit beside the blocks they begin and end in.
  EXPECT_EQ(restored.notes.size(), 0u);
  flip(store, 0, {1, 25}, 64'999);  // in its last slice, the first was delivered by then
  const Restored older = store.restore_all({1, 25});
  store.expect_true(older, store.whole_units());
  EXPECT_EQ(older.served_by[0].step, 20u);
}

TEST(RestoreJobTest, EmptyRangeGivesOneLastWindow) {
  RestoreStore store(restore_units());
  store.commit_all({1, 20});
  const Restored restored = store.restore({1, 20}, {{0, 10, 0}});
  EXPECT_EQ(restored.windows, 1u);
  EXPECT_TRUE(restored.last);
}

TEST(RestoreJobTest, WaitsForHeldWindowsAndClosesWithThem) {
  RestoreStore store(restore_units());
  store.commit_all({1, 20});
  store.forget_memory();
  store.client.hold_windows = true;
  const Restored restored = store.restore_all({1, 20});
  EXPECT_EQ(restored.windows, 2u);  // as many as there are restore slabs
  EXPECT_FALSE(restored.last);
  store.client.hold_windows = false;  // closing gave the slabs back
  store.expect_true(store.restore_all({1, 20}), store.whole_units());
}

TEST(RestoreJobTest, RefusesRangeOutsideUnitAndMissingUnit) {
  RestoreStore store(restore_units());
  store.commit({1, 20}, {0});
  const Restored outside = store.restore({1, 20}, {{0, 99'999, 2}});
  ASSERT_TRUE(outside.error.has_value());
  EXPECT_EQ(outside.error->code, ckpt::ErrorCode::kInvalidArgument);
  const Restored missing = store.restore({1, 20}, {{1, 0, 2}});
  ASSERT_TRUE(missing.error.has_value());
  EXPECT_EQ(missing.error->message,
            "run tiny step 20 unit " + store.units[1].name + ": no version in this view");
}

}  // namespace
}  // namespace ckptd
