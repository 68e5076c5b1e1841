// Restores through a source that was added to the list, and fallback along the list.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>

#include "tests/ckptd/restore/restore_store.h"
#include "tests/ckptd/sources/parcel_source.h"

namespace ckptd {
namespace {

using std::chrono::seconds;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Mode = ParcelSource::Mode;

class SourceFallbackTest : public testing::Test {
 protected:
  SourceFallbackTest() : store(restore_units()) {
    store.commit_all({1, 20}, kPiece);
    store.commit_all({1, 25}, kPiece);
    store.forget_memory();
  }
  std::unique_ptr<ParcelSource> make_parcels() {
    auto made =
        std::make_unique<ParcelSource>(*store.executor, [this](ckpt::UnitId unit, ViewPoint point) {
          return unit_bytes(store.units[unit], point);
        });
    parcels = made.get();
    return made;
  }
  // Between memory and the segments.
  void add_in_the_middle(Mode mode) {
    store.register_sources(make_parcels());
    parcels->mode = mode;
  }
  void add_at_the_end() { store.sources.add(make_parcels()); }
  // Every fragment of unit 0 is damaged on the disk.
  void damage_segments(ckpt::Step step) {
    const auto version = store.catalog.newest_version(kTestRun, 0, {1, step}, std::nullopt);
    for (const FragmentPlace& place : version->fragments) {
      store.disk.flip(segment_path(place.segment), place.payload_offset + 7);
    }
  }
  uint64_t all_bytes() const {
    uint64_t bytes = 0;
    for (const auto& unit : store.units) bytes += unit.bytes;
    return bytes;
  }
  uint64_t all_fragments() const {
    uint64_t fragments = 0;
    for (const auto& unit : store.units) fragments += (unit.bytes + kPiece - 1) / kPiece;
    return fragments;
  }
  void expect_all_from_segments(const Restored& restored, const std::string& why) const {
    store.expect_true(restored, store.whole_units());
    for (const ckpt::SnapshotKey& version : restored.served_by) EXPECT_EQ(version.step, 25u);
    EXPECT_EQ(restored.bytes.count(SourceId::kPeer), 0u);
    EXPECT_EQ(restored.bytes.at(SourceId::kSegment), all_bytes());
    EXPECT_THAT(restored.notes, SizeIs(store.units.size()));
    EXPECT_THAT(restored.notes, Each(HasSubstr(": segment instead of parcel: " + why)));
  }

  static constexpr uint64_t kPiece = 10'000;
  RestoreStore store;
  ParcelSource* parcels = nullptr;
};

TEST_F(SourceFallbackTest, AnAddedSourceServesEveryByte) {
  add_in_the_middle(Mode::kTrue);
  const Restored restored = store.restore_all({1, 25});
  store.expect_true(restored, store.whole_units());
  EXPECT_EQ(restored.bytes.at(SourceId::kPeer), all_bytes());
  EXPECT_EQ(restored.bytes.count(SourceId::kSegment), 0u);
  EXPECT_THAT(restored.notes, IsEmpty());
  EXPECT_GT(parcels->reads, 1u);
}

TEST_F(SourceFallbackTest, WrongBytesComeFromTheNextSource) {
  add_in_the_middle(Mode::kLies);
  expect_all_from_segments(store.restore_all({1, 25}), "CRC32C mismatch");
  EXPECT_EQ(parcels->failures().wrong_bytes, all_fragments());
  EXPECT_EQ(parcels->failures().failed + parcels->failures().cancelled, 0u);
}

TEST_F(SourceFallbackTest, FailedReadsComeFromTheNextSource) {
  add_in_the_middle(Mode::kFails);
  expect_all_from_segments(store.restore_all({1, 25}), "it fell off");
  EXPECT_EQ(parcels->failures().failed, all_fragments());
  EXPECT_EQ(parcels->failures().wrong_bytes + parcels->failures().cancelled, 0u);
}

TEST_F(SourceFallbackTest, CancelsSlowReadsAndUsesNextSource) {
  add_in_the_middle(Mode::kSilent);
  store.meanwhile = [this](RestoreJob& job) {
    job.tick(seconds(100));
    job.tick(seconds(109));
    EXPECT_EQ(parcels->cancels, 0u) << "nothing is overdue yet";
    for (int i = 1; i < 100; ++i) {
      job.tick(seconds(100 + 10 * i));
      store.run();
    }
  };
  expect_all_from_segments(store.restore_all({1, 25}), "no answer");
  EXPECT_EQ(parcels->failures().cancelled, all_fragments());
  EXPECT_EQ(parcels->failures().wrong_bytes + parcels->failures().failed, 0u);
  EXPECT_EQ(parcels->cancels, parcels->reads);
}

TEST_F(SourceFallbackTest, ClosingCancelsReads) {
  add_in_the_middle(Mode::kSilent);
  const Restored restored = store.restore_all({1, 25});  // closes the job
  EXPECT_EQ(restored.windows, 0u);
  EXPECT_GT(parcels->reads, 0u);
  EXPECT_EQ(parcels->cancels, parcels->reads);
  EXPECT_EQ(parcels->failures().cancelled, 0u) << "nobody needed the bytes any more";
}

TEST_F(SourceFallbackTest, TheLastSourceServesDamagedSegments) {
  add_at_the_end();
  damage_segments(25);
  const Restored restored = store.restore_all({1, 25});
  store.expect_true(restored, store.whole_units());
  EXPECT_EQ(restored.served_by[0].step, 25u);
  EXPECT_EQ(restored.bytes.at(SourceId::kPeer), store.units[0].bytes);
  EXPECT_EQ(restored.bytes.at(SourceId::kSegment), all_bytes() - store.units[0].bytes);
  EXPECT_THAT(restored.notes, testing::ElementsAre("unit " + store.units[0].name +
                                                   ": parcel instead of segment: CRC32C mismatch"));
  EXPECT_GT(store.sources.at(SourceId::kSegment).failures().wrong_bytes, 0u);
}

TEST_F(SourceFallbackTest, TheLastSourceServesRefusedSegments) {
  add_at_the_end();
  store.disk.set_faults({.path_prefix = "segments/", .refused_read = 1, .refusal = EMFILE});
  const Restored restored = store.restore_all({1, 25});
  store.disk.set_faults({});
  store.expect_true(restored, store.whole_units());
  EXPECT_GT(restored.bytes.at(SourceId::kPeer), 0u);
  EXPECT_EQ(restored.served_by[0].step, 25u);
  EXPECT_GT(store.sources.at(SourceId::kSegment).failures().failed, 0u);
}

TEST_F(SourceFallbackTest, OlderVersionReplacesDamageInEverySource) {
  add_in_the_middle(Mode::kLies);
  damage_segments(25);
  const Restored restored = store.restore_all({1, 25});
  store.expect_true(restored, store.whole_units());
  EXPECT_EQ(restored.served_by[0].step, 20u);
  EXPECT_EQ(restored.served_by[1].step, 25u);
  const Restored exact = store.restore_all({1, 25}, true);
  ASSERT_TRUE(exact.error.has_value());
  EXPECT_EQ(exact.error->code, ckpt::ErrorCode::kCorrupt);
}

TEST_F(SourceFallbackTest, RefusalByAnySourcePreventsFallback) {
  add_in_the_middle(Mode::kRefuses);
  damage_segments(25);
  const Restored restored = store.restore_all({1, 25});
  ASSERT_TRUE(restored.error.has_value());
  EXPECT_EQ(restored.error->code, ckpt::ErrorCode::kUnavailable);
  EXPECT_THAT(restored.error->message, HasSubstr("could not be read: segment"));
}

TEST_F(SourceFallbackTest, CorruptMemoryIsServedByNextSource) {
  RestoreStore& fresh = store;
  fresh.commit_all({1, 30}, kPiece);
  add_in_the_middle(Mode::kTrue);
  auto lease = fresh.staging.find_cached(kRestoreUid, fresh.key({1, 30}), 1, 0, kPiece);
  ASSERT_TRUE(lease.has_value());
  const_cast<std::byte&>(lease->bytes[0]) ^= std::byte{1};
  lease.reset();
  const Restored restored = fresh.restore_all({1, 30});
  fresh.expect_true(restored, fresh.whole_units());
  EXPECT_EQ(restored.bytes.at(SourceId::kPeer), kPiece);
  EXPECT_EQ(restored.bytes.count(SourceId::kSegment), 0u);
  EXPECT_THAT(restored.notes, testing::ElementsAre("unit " + fresh.units[1].name +
                                                   ": parcel instead of memory: CRC32C mismatch"));
}

}  // namespace
}  // namespace ckptd
