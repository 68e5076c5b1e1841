// How places become chunks. Pure: no device, no daemon.
#include "client/src/cuda/stage_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "formats/arena.h"

namespace ckpt::lib {
namespace {

constexpr uint64_t kChunkBytes = 64 << 10;

class StagePlanTest : public testing::Test {
 protected:
  void add(UnitId unit, uint64_t at, uint64_t bytes) {
    plan_.add({.unit = unit, .sources = {}, .to = {arena_.data() + at, bytes}, .id = ++id_});
  }
  std::vector<std::byte> arena_{1 << 20};
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
  EXPECT_EQ(plan_.chunks()[0].places.size(), 3u);
  EXPECT_FALSE(plan_.chunks()[1].has_gaps);
  EXPECT_EQ(plan_.last_chunk_of(2), 0);
  EXPECT_EQ(plan_.last_chunk_of(5), 3);
  EXPECT_EQ(plan_.last_chunk_of(9), -1);
}

// Whatever is lent in whatever sizes that room() allows: every place is in one chunk, in order,
// inside its bounds.
TEST_F(StagePlanTest, EveryPlaceIsInOneChunk) {
  std::mt19937_64 random(11);
  uint64_t at = 0;
  std::vector<uint64_t> ends;
  while (at + 2 * kChunkBytes < arena_.size()) {
    const uint64_t bytes = 1 + random() % std::min<uint64_t>(plan_.room(), 30'000);
    add(static_cast<UnitId>(random() % 7), at, bytes);
    at += bytes + (random() % 3 == 0 ? random() % kBlockBytes : 0);
  }
  uint64_t places = 0;
  for (const StageChunk& chunk : plan_.chunks()) {
    EXPECT_LE(chunk.bytes, kChunkBytes);
    uint64_t end = 0;
    bool gaps = false;
    for (const StagedPlace& place : chunk.places) {
      EXPECT_GE(chunk.offset_of(place), end);
      gaps = gaps || chunk.offset_of(place) > end;
      end = chunk.offset_of(place) + place.to.size();
      EXPECT_EQ(place.id, ++places);
    }
    EXPECT_EQ(end, chunk.bytes);
    EXPECT_EQ(gaps, chunk.has_gaps);
  }
  EXPECT_EQ(places, id_);
}

}  // namespace
}  // namespace ckpt::lib
