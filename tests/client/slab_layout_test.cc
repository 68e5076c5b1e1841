#include "client/src/slab_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ckpt::lib {
namespace {

TEST(SlabLayout, SmallFragmentsArePackedToCacheLines) {
  SlabLayout layout(64 << 10);
  const auto first = layout.place(100);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->offset, 0u);
  EXPECT_EQ(first->length, 100u);
  layout.fill(0, 100);
  EXPECT_EQ(layout.place(100)->offset, 128u);
}

TEST(SlabLayout, LargeFragmentsStartOnABlock) {
  SlabLayout layout(1 << 20);
  layout.fill(0, 100);
  EXPECT_EQ(layout.place(kAlignedFragmentBytes)->offset, kBlockBytes);
  EXPECT_EQ(layout.place(kAlignedFragmentBytes - 1)->offset, 128u);
}

TEST(SlabLayout, FragmentIsSplitAtSlabEndWithoutCrumbs) {
  SlabLayout layout(64 << 10);
  layout.fill(0, (64 << 10) - kBlockBytes);
  EXPECT_EQ(layout.place(8000)->length, kBlockBytes);
  layout.extend(64);
  EXPECT_FALSE(layout.place(8000));  // would leave a crumb
  EXPECT_TRUE(layout.place(1000));   // fits whole
}

TEST(SlabLayout, FragmentTableIsBounded) {
  SlabLayout layout(64 << 20);
  for (size_t i = 0; i < kFragmentsPerSlabMax; ++i) {
    const auto place = layout.place(8);
    ASSERT_TRUE(place);
    layout.fill(place->offset, place->length);
  }
  EXPECT_FALSE(layout.place(8));
}

TEST(SlabLayout, UpperBoundOfLargeFragmentsIsTight) {
  EXPECT_EQ(slabs_at_most(std::vector<uint64_t>{10 << 20, (32 << 20) - 9000}, 16 << 20), 3u);
  EXPECT_EQ(slabs_at_most(std::vector<uint64_t>(100'000, 8), 64 << 20), 2u) << "the table is full";
  EXPECT_EQ(slabs_at_most(std::vector<uint64_t>{}, 16 << 20), 0u);
}

// Any fragments, any slab size: pieces lie inside slabs, do not overlap, have the daemon's
// alignment and cover everything in order, and slabs_needed() equals the number of slabs used.
TEST(SlabLayout, PropertiesHoldForRandomFragments) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    const uint64_t slab_bytes = kSlabBytesMin + kBlockBytes * (random() % 64);
    std::vector<uint64_t> lengths(1 + random() % 50);
    for (uint64_t& length : lengths) length = 1 + random() % (1ull << (1 + random() % 19));
    uint32_t slabs = 0;
    std::optional<SlabLayout> layout;
    for (const uint64_t length : lengths) {
      uint64_t remaining = length;
      while (remaining > 0) {
        const auto place = layout ? layout->place(remaining) : std::nullopt;
        if (!place) {
          layout.emplace(slab_bytes);
          ++slabs;
          ASSERT_TRUE(layout->place(remaining)) << "an empty slab takes something of anything";
          continue;
        }
        ASSERT_GE(place->offset, layout->filled());
        ASSERT_LE(place->offset + place->length, slab_bytes);
        ASSERT_GT(place->length, 0u);
        if (place->length >= kAlignedFragmentBytes) {
          ASSERT_EQ(place->offset % kBlockBytes, 0u);
        }
        layout->fill(place->offset, place->length);
        remaining -= place->length;
      }
    }
    EXPECT_EQ(slabs_needed(lengths, slab_bytes), slabs);
    const uint64_t at_most = slabs_at_most(lengths, slab_bytes);
    EXPECT_LE(slabs, at_most);
    std::shuffle(lengths.begin(), lengths.end(), random);
    EXPECT_LE(slabs_needed(lengths, slab_bytes), at_most);
  }
}

}  // namespace
}  // namespace ckpt::lib
