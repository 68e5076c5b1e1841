// The arena of gpu_bench, which has no daemon: places, and what becomes of slabs.
#include "bench/service/gpu/memory_sink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "formats/base/crc32c.h"

namespace bench::gpu {
namespace {

constexpr uint64_t kSlabBytes = 256 << 10;

class MemorySinkTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = make_sink(kSlabBytes, 2);
    ASSERT_TRUE(made.ok()) << made.error().message;
    sink_ = std::move(made).value();
  }
  static ckpt_place reserve(SinkSnapshot& snapshot, uint64_t length) {
    ckpt_place place{};
    EXPECT_EQ(ckpt_snapshot_reserve(handle(snapshot), 3, 0, length, 0, &place), CKPT_OK);
    return place;
  }

  std::unique_ptr<MemorySink> sink_;
};

TEST_F(MemorySinkTest, PlacesAreDisjointInsideArena) {
  uint64_t bytes = 0;
  auto* const arena = static_cast<std::byte*>(ckpt_arena(handle(*sink_), &bytes));
  ASSERT_EQ(bytes, 2 * kSlabBytes);
  SinkSnapshot snapshot = begin_snapshot(*sink_);
  const std::byte* end = arena;
  for (const uint64_t length : {100'000, 7, 200'000}) {
    for (uint64_t left = length; left > 0;) {
      const ckpt_place place = reserve(snapshot, left);
      const auto* const at = static_cast<const std::byte*>(place.data);
      ASSERT_GE(at, end);
      end = at + place.length;
      left -= place.length;
      EXPECT_EQ(ckpt_snapshot_filled(handle(snapshot), place.id, 9), CKPT_OK);
    }
  }
  EXPECT_LE(end, arena + bytes);
  EXPECT_EQ(snapshot.places.back().crc32c, 9u);
  EXPECT_EQ(snapshot.places.back().unit, 3u);
  EXPECT_EQ(ckpt_snapshot_end(handle(snapshot)), CKPT_OK);
}

TEST_F(MemorySinkTest, SnapshotEndsAfterLastPlaceAndFreesSlabs) {
  for (int round = 0; round < 3; ++round) {
    SinkSnapshot snapshot = begin_snapshot(*sink_);
    const ckpt_place first = reserve(snapshot, kSlabBytes);
    const ckpt_place second = reserve(snapshot, kSlabBytes);
    ckpt_place third{};
    EXPECT_EQ(ckpt_snapshot_reserve(handle(snapshot), 3, 0, 1, 0, &third),
              CKPT_E_RESOURCE_EXHAUSTED);
    EXPECT_EQ(ckpt_snapshot_filled(handle(snapshot), first.id, 1), CKPT_OK);
    EXPECT_EQ(ckpt_snapshot_end(handle(snapshot)), CKPT_E_FAILED_PRECONDITION);
    EXPECT_STREQ(ckpt_session_error(handle(*sink_)), "a place is still lent");
    EXPECT_EQ(ckpt_snapshot_filled(handle(snapshot), second.id, 1), CKPT_OK);
    EXPECT_EQ(ckpt_snapshot_filled(handle(snapshot), second.id, 1), CKPT_E_INVALID_ARGUMENT);
    EXPECT_EQ(ckpt_snapshot_end(handle(snapshot)), CKPT_OK);
  }
}

TEST_F(MemorySinkTest, AbortedSnapshotFreesSlabsOnce) {
  SinkSnapshot snapshot = begin_snapshot(*sink_);
  const ckpt_place place = reserve(snapshot, kSlabBytes);
  EXPECT_EQ(ckpt_snapshot_abort(handle(snapshot), "enough"), CKPT_OK);
  EXPECT_EQ(ckpt_snapshot_abort(handle(snapshot), "enough"), CKPT_OK);
  EXPECT_EQ(ckpt_snapshot_filled(handle(snapshot), place.id, 1), CKPT_E_ABORTED);
  EXPECT_EQ(ckpt_snapshot_end(handle(snapshot)), CKPT_E_ABORTED);
  EXPECT_EQ(sink_->slabs_free, 2u);
}

TEST_F(MemorySinkTest, WindowsAreSlabsWithFilledPlaces) {
  SinkSnapshot snapshot = begin_snapshot(*sink_);
  uint32_t crc = 0;
  for (const uint64_t length : {100'000, 70'000, 200'000}) {  // the last in both slabs
    for (uint64_t left = length; left > 0;) {
      const ckpt_place place = reserve(snapshot, left);
      ASSERT_EQ(ckpt_snapshot_filled(handle(snapshot), place.id, ++crc), CKPT_OK);
      left -= place.length;
    }
  }
  ASSERT_EQ(ckpt_snapshot_end(handle(snapshot)), CKPT_OK);
  SinkRestore restore = begin_restore(snapshot);
  size_t place = 0;
  for (const uint64_t id : {1, 2}) {
    ckpt_restore_window window{};
    ASSERT_EQ(ckpt_restore_next(handle(restore), 0, &window), CKPT_OK);
    ASSERT_EQ(window.id, id);
    for (size_t i = 0; i < window.piece_count; ++i, ++place) {
      const ckpt_restore_piece& piece = window.pieces[i];
      EXPECT_EQ(static_cast<const std::byte*>(window.data) + piece.at,
                snapshot.places[place].memory.data());
      EXPECT_EQ(piece.length, snapshot.places[place].memory.size());
      EXPECT_LE(piece.at + piece.length, window.bytes);
      EXPECT_EQ(piece.crc32c, place + 1);
    }
  }
  EXPECT_EQ(place, snapshot.places.size());
  ckpt_restore_window window{};
  ASSERT_EQ(ckpt_restore_next(handle(restore), 0, &window), CKPT_OK);
  EXPECT_EQ(window.id, 0u);
  EXPECT_NE(window.complete, 0);
}

// Ranges that begin and end within places, as tensors do within fragments.
TEST_F(MemorySinkTest, PiecesOfRangesHaveTheirOwnCrcs) {
  SinkSnapshot snapshot = begin_snapshot(*sink_);
  constexpr uint64_t kUnitBytes = 300'000;  // more than a slab
  for (uint64_t at = 0; at < kUnitBytes;) {
    ckpt_place place{};
    ASSERT_EQ(ckpt_snapshot_reserve(handle(snapshot), 3, at, kUnitBytes - at, 0, &place), CKPT_OK);
    auto* const bytes = static_cast<std::byte*>(place.data);
    for (uint64_t i = 0; i < place.length; ++i) bytes[i] = std::byte((at + i) % 251);
    const uint32_t crc = ckpt::base::crc32c({bytes, place.length});
    ASSERT_EQ(ckpt_snapshot_filled(handle(snapshot), place.id, crc), CKPT_OK);
    at += place.length;
  }
  ASSERT_EQ(ckpt_snapshot_end(handle(snapshot)), CKPT_OK);
  const std::vector<ckpt_cuda_destination> ranges{
      {3, 0, nullptr, 100}, {3, 200'000, nullptr, 90'000}, {4, 0, nullptr, 5}};
  const auto restored = [&](const SinkRestore& restore, size_t range) {
    std::vector<std::byte> bytes(ranges[range].length);
    for (const SinkRestore::Window& window : restore.windows) {
      for (const ckpt_restore_piece& piece : window.pieces) {
        if (piece.range != range) continue;
        EXPECT_EQ(ckpt::base::crc32c({window.data + piece.at, piece.length}), piece.crc32c);
        EXPECT_LE(piece.at + piece.length, window.bytes);
        std::copy_n(window.data + piece.at, piece.length, bytes.begin() + piece.offset);
      }
    }
    return bytes;
  };
  const SinkRestore restore = begin_restore(snapshot, ranges);
  EXPECT_EQ(restore.mismatches, 0u);
  for (const size_t range : {0, 1}) {
    const std::vector<std::byte> bytes = restored(restore, range);
    for (uint64_t i = 0; i < bytes.size(); ++i) {
      ASSERT_EQ(bytes[i], std::byte((ranges[range].offset + i) % 251)) << range << " at " << i;
    }
  }
  sink_->arena[50] ^= std::byte{1};
  EXPECT_EQ(begin_restore(snapshot, ranges).mismatches, 1u);
}

}  // namespace
}  // namespace bench::gpu
