// How places become chunks, and chunks become packs. Pure: no device, no daemon.
#include "client/src/cuda/stage_plan.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "formats/arena.h"

namespace ckpt::lib {
namespace {

constexpr uint64_t kChunkBytes = 64 << 10;

class StagePlanTest : public testing::Test {
 protected:
  void add(UnitId unit, uint64_t at, uint64_t bytes) {
    const std::array<DeviceBytes, 2> sources{
        {{state_.data() + at, bytes / 2}, {state_.data() + at + bytes / 2, bytes - bytes / 2}}};
    plan_.add({.unit = unit, .to = {arena_.data() + at, bytes}, .id = ++id_}, sources);
  }
  // Places that are lent in sizes that room() allows, with gaps and without.
  void add_at_random(std::mt19937_64& random) {
    for (uint64_t at = 0; at + 2 * kChunkBytes < arena_.size();) {
      const uint64_t bytes = 1 + random() % std::min<uint64_t>(plan_.room(), 30'000);
      add(static_cast<UnitId>(random() % 7), at, bytes);
      at += bytes + (random() % 3 == 0 ? random() % kBlockBytes : 0);
      if (random() % 10 == 0) plan_.close();
    }
  }
  uint64_t offset_of(const StagedPlace& place, const StageChunk& chunk) const {
    return static_cast<uint64_t>(place.to.data() - chunk.to);
  }
  std::vector<std::byte> arena_{1 << 20};
  std::vector<std::byte> state_{arena_.size()};
  StagePlan plan_{kChunkBytes};
  uint64_t id_ = 0;
};

TEST_F(StagePlanTest, JoinsWhatLiesTogetherAndCutsWhatDoesNot) {
  EXPECT_EQ(plan_.room(), kChunkBytes);
  add(0, 0, 100);
  add(1, 128, 100);            // a gap
  add(2, 4096, 60'000);        // still one copy
  add(3, 65'536, 100);         // would make the chunk too long
  add(4, 65'536 + 8192, 100);  // too far away
  add(5, 512, 10);             // before: another slab
  ASSERT_EQ(plan_.chunks().size(), 4u);
  EXPECT_EQ(plan_.chunks()[0].bytes, 64'096u);
  EXPECT_TRUE(plan_.chunks()[0].has_gaps);
  EXPECT_EQ(plan_.chunks()[0].places_end, 3u);
  EXPECT_FALSE(plan_.chunks()[1].has_gaps);
  EXPECT_EQ(plan_.last_chunk_of(2), 0);
  EXPECT_EQ(plan_.last_chunk_of(5), 3);
  EXPECT_EQ(plan_.last_chunk_of(9), -1);
}

TEST_F(StagePlanTest, OnlyTheLastChunkGrowsAndNotOnceItIsClosed) {
  EXPECT_EQ(plan_.ready(), 0u);
  add(0, 0, 100);
  EXPECT_EQ(plan_.ready(), 0u);
  plan_.close();
  EXPECT_EQ(plan_.ready(), 1u);
  EXPECT_EQ(plan_.room(), kChunkBytes);
  add(0, 100, 100);  // would go on with it
  ASSERT_EQ(plan_.chunks().size(), 2u);
  EXPECT_EQ(plan_.chunks()[0].bytes, 100u);
  EXPECT_EQ(plan_.ready(), 1u);
  add(0, 200, 100);
  EXPECT_EQ(plan_.chunks().size(), 2u);
  EXPECT_EQ(plan_.last_chunk_of(0), 1);
}

// Every place is in one chunk, in order, inside its bounds.
TEST_F(StagePlanTest, EveryPlaceIsInOneChunk) {
  std::mt19937_64 random(11);
  add_at_random(random);
  uint64_t places = 0;
  for (size_t i = 0; i < plan_.chunks().size(); ++i) {
    const StageChunk& chunk = plan_.chunks()[i];
    EXPECT_LE(chunk.bytes, kChunkBytes);
    EXPECT_EQ(plan_.first_place(i), places);
    uint64_t end = 0;
    bool gaps = false;
    for (; places < chunk.places_end; ++places) {
      const StagedPlace& place = plan_.places()[places];
      EXPECT_GE(offset_of(place, chunk), end);
      gaps = gaps || offset_of(place, chunk) > end;
      end = offset_of(place, chunk) + place.to.size();
      EXPECT_EQ(place.id, places + 1);
    }
    EXPECT_EQ(end, chunk.bytes);
    EXPECT_EQ(gaps, chunk.has_gaps);
  }
  EXPECT_EQ(places, id_);
}

// What is gathered by the lists of any chunks, and drained chunk by chunk, is what was there.
TEST_F(StagePlanTest, ListsOfAPackBringEachByteToItsSlot) {
  std::mt19937_64 random(12);
  for (std::byte& byte : state_) byte = static_cast<std::byte>(random());
  add_at_random(random);
  PackLists lists;
  size_t places = 0;
  for (size_t first = 0; first < plan_.chunks().size();) {
    const size_t end = std::min(plan_.chunks().size(), first + 1 + random() % 5);
    plan_.list(first, end, lists);
    std::vector<std::byte> slots((end - first) * kChunkBytes);
    for (const kernels::PackPiece& piece : lists.pieces) {
      std::copy_n(piece.from, piece.bytes, slots.begin() + static_cast<ptrdiff_t>(piece.offset));
    }
    size_t range = 0;
    for (size_t i = first; i < end; ++i) {
      const StageChunk& chunk = plan_.chunks()[i];
      const auto slot = slots.begin() + static_cast<ptrdiff_t>((i - first) * kChunkBytes);
      for (; places < chunk.places_end; ++places, ++range) {
        const StagedPlace& place = plan_.places()[places];
        ASSERT_LT(range, lists.ranges.size());
        EXPECT_EQ(lists.ranges[range].offset, (i - first) * kChunkBytes + offset_of(place, chunk));
        EXPECT_EQ(lists.ranges[range].bytes, place.to.size());
        std::copy_n(slot + static_cast<ptrdiff_t>(offset_of(place, chunk)), place.to.size(),
                    place.to.begin());
        const auto at = static_cast<size_t>(place.to.data() - arena_.data());
        EXPECT_TRUE(std::equal(place.to.begin(), place.to.end(),
                               state_.begin() + static_cast<ptrdiff_t>(at)));
      }
    }
    EXPECT_EQ(range, lists.ranges.size());
    first = end;
  }
  EXPECT_EQ(places, id_);
}

TEST(GroupChunksTest, GroupsDoubleUpToAQuarterOfTheBufferAndEndWhereItDoes) {
  constexpr size_t kSlots = 22;
  std::vector<size_t> groups;
  for (size_t chunk = 9; chunk < 9 + 3 * kSlots; chunk += groups.back()) {
    groups.push_back(group_chunks(groups.size(), chunk % kSlots, kSlots));
  }
  EXPECT_EQ(groups, (std::vector<size_t>{1, 2, 4, 5, 1,  //
                                         5, 5, 5, 5, 2,  //
                                         5, 5, 5, 5, 2,  //
                                         5, 5}));
  EXPECT_EQ(group_chunks(1'000'000, 0, 1 << 20), size_t{1} << 18);
  for (size_t slots = 2; slots < 8; ++slots) EXPECT_EQ(group_chunks(9, 0, slots), 1u) << slots;
}

}  // namespace
}  // namespace ckpt::lib
