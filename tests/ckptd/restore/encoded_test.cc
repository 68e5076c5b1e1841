// Commits whose fragments are encoded on the disk: everything that reads segments, on them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/ckptd/restore/restore_store.h"

namespace ckptd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Units with tensors of every size of element.
std::vector<ckpt::UnitSpec> typed_units(std::mt19937_64& random) {
  std::vector<ckpt::UnitSpec> units = restore_units();
  for (ckpt::UnitSpec& unit : units) {
    uint64_t at = 0;
    while (unit.tensors.size() < 5) {
      const auto dtype = static_cast<ckpt::DType>(random() % ckpt::kDTypeCountOfVersion8);
      const uint64_t most = (unit.bytes - at) / ckpt::dtype_bytes(dtype);
      if (most == 0) break;
      const uint64_t count = 1 + random() % most;
      unit.tensors.push_back({.name = fmt::format("t{}", unit.tensors.size()),
                              .dtype = dtype,
                              .shape = {count},
                              .offset = at});
      at += count * ckpt::dtype_bytes(dtype);
    }
  }
  return units;
}

// The first place of the unit's version that is encoded.
FragmentPlace encoded_place(const RestoreStore& store, ckpt::UnitId unit, ViewPoint point) {
  const auto version = store.catalog.newest_version(kTestRun, unit, point, std::nullopt);
  for (const FragmentPlace& place : version->fragments) {
    if (place.codec != 0) return place;
  }
  ADD_FAILURE() << "nothing of it is encoded";
  return {};
}

// One test body with and without a codec: readers see no difference.
class EncodedOrRaw : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Codec, EncodedOrRaw, testing::Bool(),
                         [](const auto& codec) { return codec.param ? "zstd" : "none"; });

TEST_P(EncodedOrRaw, RestoresAnyRangesOfAnyLayout) {
  const auto seed = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  std::mt19937_64 random(seed);
  for (int round = 0; round < 10; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    RestoreStore store(typed_units(random), seed);
    store.encode = GetParam();
    store.commit_all({1, 5}, 1 + random() % 40'000 + 500);
    store.commit({1, 7}, {0, 2}, 1 + random() % 60'000 + 500);
    EXPECT_THAT(store.verify().errors, IsEmpty());
    if (random() % 3 != 0) store.forget_memory();
    if (random() % 3 == 0) store.client.locate_bytes_max = kRestoreSlabBytes;
    std::vector<ckpt::UnitRange> wants = store.whole_units();
    for (int i = 0; i < 20; ++i) {
      const auto unit = static_cast<ckpt::UnitId>(random() % store.units.size());
      const uint64_t from = random() % store.units[unit].bytes;
      wants.push_back({unit, from, random() % (store.units[unit].bytes - from + 1)});
    }
    std::shuffle(wants.begin(), wants.end(), random);
    store.expect_true(store.restore({1, 8}, wants), wants);
  }
}

class EncodedTest : public testing::Test {
 protected:
  EncodedTest() : store(restore_units()) {
    store.encode = true;
    store.commit_all({1, 20}, 30'000);
    store.commit_all({1, 25}, 30'000);
    store.forget_memory();
  }
  RestoreStore store;
};

TEST_F(EncodedTest, WritesFewerBytes) {
  const Persist::Stats stats = store.persist.stats();
  EXPECT_GT(stats.encoded_raw_bytes, 200'000u);
  EXPECT_LT(stats.encoded_stored_bytes, stats.encoded_raw_bytes * 9 / 10);
  EXPECT_EQ(stats.bytes_queued, 0u);
  EXPECT_LT(stats.bytes_written, stats.raw_bytes + stats.encoded_raw_bytes);
}

TEST_F(EncodedTest, VerifyNamesFlippedBit) {
  const FragmentPlace place = encoded_place(store, 0, {1, 25});
  for (const uint64_t at : {uint64_t{0}, place.encoded_bytes / 2, place.encoded_bytes - 1}) {
    store.disk.flip(segment_path(place.segment), place.payload_offset + at, 0x04);
    const VerifyReport report = store.verify();
    ASSERT_THAT(report.errors, SizeIs(1));
    EXPECT_EQ(report.errors[0].run, "tiny");
    EXPECT_EQ(report.errors[0].step, 25u);
    EXPECT_EQ(report.errors[0].unit, store.units[0].name);
    EXPECT_THAT(report.errors[0].reason,
                HasSubstr(fmt::format("segment {} offset {}: CRC32C mismatch", place.segment,
                                      place.payload_offset)));
    store.disk.flip(segment_path(place.segment), place.payload_offset + at, 0x04);
  }
  EXPECT_THAT(store.verify().errors, IsEmpty());
}

TEST_F(EncodedTest, DamageFallsBackToOlderVersionWithNote) {
  const FragmentPlace place = encoded_place(store, 0, {1, 25});
  store.disk.flip(segment_path(place.segment), place.payload_offset + 100);
  const Restored restored = store.restore_all({1, 25});
  store.expect_true(restored, store.whole_units());
  EXPECT_EQ(restored.served_by[0].step, 20u);
  EXPECT_EQ(restored.served_by[1].step, 25u);
  ASSERT_THAT(restored.notes, SizeIs(1));
  EXPECT_THAT(restored.notes[0], HasSubstr("CRC32C mismatch of its encoded bytes"));
  const Restored exact = store.restore_all({1, 25}, true);
  ASSERT_TRUE(exact.error.has_value());
  EXPECT_THAT(exact.error->message, HasSubstr(store.units[0].name));
}

TEST_F(EncodedTest, LocatingClientGetsEncodedFragmentsInSlabs) {
  store.client.locate_bytes_max = kRestoreSlabBytes;
  const Restored restored = store.restore_all({1, 25});
  store.expect_true(restored, store.whole_units());
  uint64_t encoded = 0;
  uint64_t all = 0;
  for (ckpt::UnitId unit = 0; unit < store.units.size(); ++unit) {
    const auto version = store.catalog.newest_version(kTestRun, unit, {1, 25}, std::nullopt);
    for (const FragmentPlace& place : version->fragments) {
      all += place.length;
      encoded += place.codec == 0 ? 0 : place.length;
    }
  }
  EXPECT_EQ(restored.bytes.at(SourceId::kSegment), encoded);
  EXPECT_EQ(restored.bytes_located, all - encoded);
  EXPECT_THAT(restored.notes, IsEmpty());
}

// Only what a range touches is read and decoded, not the whole unit.
TEST_F(EncodedTest, RangeDecodesOnlyItsPieces) {
  DecodeMeter meter;
  store.meter = &meter;
  const std::vector<ckpt::UnitRange> wants = {{0, 35'000, 10}};
  store.expect_true(store.restore({1, 25}, wants), wants);
  EXPECT_GT(meter.raw_bytes, 0u);
  EXPECT_LE(meter.raw_bytes, 30'000u);
}

}  // namespace
}  // namespace ckptd
