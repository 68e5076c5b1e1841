#include "ckptd/persist/slab_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "formats/base/checked.h"

namespace ckptd {
namespace {

using ::testing::ElementsAre;
using Fragments = std::vector<ckpt::ExtentFragment>;
using Flags = std::vector<bool>;

ckpt::ExtentFragment fragment_at(uint64_t payload_offset, uint64_t length) {
  ckpt::ExtentFragment fragment;
  fragment.payload_offset = payload_offset;
  fragment.length = length;
  return fragment;
}

TEST(SlabParts, FragmentsSharingWrittenBlockAreWritten) {
  // The first two share block 0, the third has blocks 1 and 2 for itself, the last two share 3.
  const Fragments fragments = {fragment_at(0, 100), fragment_at(128, 200), fragment_at(4096, 5000),
                               fragment_at(3 * 4096, 10), fragment_at(3 * 4096 + 10, 10)};
  EXPECT_EQ(left_out_of_slab(fragments, {true, true, true, true, true}, 0), Flags(5, true));
  EXPECT_EQ(left_out_of_slab(fragments, {true, false, true, true, true}, 0),
            (Flags{false, false, true, true, true}));
  EXPECT_EQ(left_out_of_slab(fragments, {true, true, false, true, true}, 0),
            (Flags{true, true, false, true, true}));
  EXPECT_EQ(left_out_of_slab(fragments, {true, true, true, false, true}, 0),
            (Flags{true, true, true, false, false}));
}

TEST(SlabParts, ChainOfSharedBlocksIsWrittenWhole) {
  const Fragments fragments = {fragment_at(0, 5000), fragment_at(5000, 5000),
                               fragment_at(10'000, 5000)};
  EXPECT_EQ(left_out_of_slab(fragments, {false, true, true}, 0), Flags(3, false));
  EXPECT_EQ(left_out_of_slab(fragments, {true, true, false}, 0), Flags(3, false));
}

// Leaving out short stretches would cost more requests than it saves.
TEST(SlabParts, ShortStretchesAreNotLeftOut) {
  const Fragments fragments = {fragment_at(0, 4096), fragment_at(4096, 4096),
                               fragment_at(8192, 4096), fragment_at(12'288, 8191)};
  EXPECT_EQ(left_out_of_slab(fragments, {true, true, false, true}, 8192),
            (Flags{true, true, false, false}));
  EXPECT_EQ(left_out_of_slab(fragments, {true, true, true, true}, 20'480), Flags(4, false));
  EXPECT_EQ(left_out_of_slab(fragments, {true, true, true, true}, 20'479), Flags(4, true));
}

TEST(SlabParts, PartsAreWrittenWithoutGaps) {
  const Fragments fragments = {fragment_at(0, 4096), fragment_at(8192, 100),
                               fragment_at(16'384, 6000)};
  const SlabParts parts = parts_of_slab(fragments, {true, false, false});
  EXPECT_THAT(parts.parts, ElementsAre(SlabParts::Part{8192, 4096}, SlabParts::Part{16'384, 8192}));
  EXPECT_THAT(parts.fragments, ElementsAre(fragment_at(0, 100), fragment_at(4096, 6000)));
  EXPECT_EQ(parts.payload_bytes, 10'096u);
  EXPECT_TRUE(parts_of_slab(fragments, Flags(3, true)).parts.empty());
}

// In any layout, the written bytes are every byte of the included fragments, at its place, and no
// byte of the omitted ones.
TEST(SlabParts, WritesOnlyIncludedFragmentsOfRandomSlabs) {
  const uint64_t seed = 20'261;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 500; ++round) {
    Fragments fragments;
    uint64_t at = 0;
    for (uint64_t count = 1 + random() % 8; count > 0; --count) {
      if (random() % 3 == 0) at = ckpt::base::align_up(at, ckpt::kBlockBytes);
      at += random() % 3 == 0 ? random() % 9000 : 0;
      fragments.push_back(fragment_at(at, 1 + random() % 10'000));
      at += fragments.back().length;
    }
    std::vector<uint16_t> slab(ckpt::base::align_up(at, ckpt::kBlockBytes), 0);
    Flags elsewhere;
    for (size_t i = 0; i < fragments.size(); ++i) {
      elsewhere.push_back(random() % 2 == 0);
      for (uint64_t byte = 0; byte < fragments[i].length; ++byte) {
        slab[fragments[i].payload_offset + byte] = static_cast<uint16_t>(i + 1);
      }
    }
    const Flags left_out = left_out_of_slab(fragments, elsewhere, 0);
    const SlabParts parts = parts_of_slab(fragments, left_out);
    std::vector<uint16_t> written;
    for (const SlabParts::Part& part : parts.parts) {
      ASSERT_EQ(part.offset % ckpt::kBlockBytes + part.bytes % ckpt::kBlockBytes, 0u);
      const auto from = slab.begin() + static_cast<ptrdiff_t>(part.offset);
      written.insert(written.end(), from, from + static_cast<ptrdiff_t>(part.bytes));
    }
    ASSERT_EQ(ckpt::base::align_up(parts.payload_bytes, ckpt::kBlockBytes), written.size());
    size_t next = 0;
    for (size_t i = 0; i < fragments.size(); ++i) {
      ASSERT_TRUE(elsewhere[i] || !left_out[i]);
      if (left_out[i]) {
        ASSERT_EQ(std::count(written.begin(), written.end(), i + 1), 0);
        continue;
      }
      const ckpt::ExtentFragment& moved = parts.fragments[next++];
      ASSERT_EQ(moved.length, fragments[i].length);
      for (uint64_t byte = 0; byte < moved.length; ++byte) {
        ASSERT_EQ(written[moved.payload_offset + byte], i + 1);
      }
    }
    ASSERT_EQ(next, parts.fragments.size());
  }
}

}  // namespace
}  // namespace ckptd
