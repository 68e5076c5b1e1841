#include "ckptd/dedup/dedup_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace ckptd {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using Part = DedupRead::Part;

constexpr uint64_t kMost = 16 * ckpt::kBlockBytes;

FragmentPlace place(ckpt::SegmentId segment, uint64_t payload_offset, uint64_t length) {
  FragmentPlace place;
  place.segment = segment;
  place.payload_offset = payload_offset;
  place.length = length;
  return place;
}

constexpr DedupPlanLimits kLimits = {.read_bytes_max = kMost};

DedupExtent extent(ckpt::SegmentId segment, uint64_t offset, uint32_t header_bytes) {
  DedupExtent extent;
  extent.expected.segment = segment;
  extent.expected.offset = offset;
  extent.header_bytes = header_bytes;
  return extent;
}

TEST(DedupPlan, MergesAdjacentReadsInDiskOrder) {
  const std::vector<DedupCandidate> candidates = {{0, {place(2, 8192, 100)}},
                                                  {1, {place(1, 4096, 4096), place(1, 8192, 10)}}};
  EXPECT_THAT(plan_dedup(candidates, {}, kLimits).reads,
              ElementsAre(DedupRead{1, 4096, 12'288, {Part{1, 0, 0, 4096}, Part{1, 1, 0, 10}}},
                          DedupRead{2, 8192, 12'288, {Part{0, 0, 0, 100}}}));
}

TEST(DedupPlan, SplitsReadsAtGapsAboveTheLimit) {
  const std::vector<DedupCandidate> candidates = {{0, {place(1, 4096, 10)}},
                                                  {1, {place(1, 16'384, 10)}}};
  EXPECT_THAT(plan_dedup(candidates, {}, kLimits).reads, SizeIs(2));
  const DedupPlanLimits with_gaps = {.read_bytes_max = kMost, .gap_bytes_max = 8192};
  EXPECT_THAT(plan_dedup(candidates, {}, with_gaps).reads,
              ElementsAre(DedupRead{1, 4096, 20'480, {Part{0, 0, 0, 10}, Part{1, 0, 0, 10}}}));
}

// Headers are read only for extents with compared fragments, in one read with adjacent bytes.
TEST(DedupPlan, ReadsHeadersOfComparedExtents) {
  FragmentPlace one = place(1, 8192, 10);
  one.extent_offset = 4096;
  EXPECT_THAT(
      plan_dedup({{0, {one}}}, {extent(1, 4096, 4096), extent(1, 65'536, 4096)}, kLimits).reads,
      ElementsAre(DedupRead{1, 4096, 12'288, {Part{0, 0, 0, 10}}, {0}}));
  const DedupPlan none = plan_dedup({{0, {one}}}, {extent(1, 4096, kMost + 4096)}, kLimits);
  EXPECT_THAT(none.reads, SizeIs(0));
  EXPECT_THAT(none.scattered, ElementsAre(0));
}

// A read costs as much as a short write, so scattered fragments are written, not compared. Reads of
// headers do not count.
TEST(DedupPlan, SkipsFragmentsThatNeedTooManyReads) {
  const DedupPlanLimits limits = {.read_bytes_max = kMost, .compared_bytes_min = 8192};
  FragmentPlace large = place(1, 65'536, 8192);
  large.extent_offset = 4096;
  const std::vector<DedupCandidate> candidates = {
      {0, {place(2, 4096, 10)}}, {1, {large}}, {2, {place(3, 4096, 8192), place(4, 0, 10)}}};
  const DedupPlan plan = plan_dedup(candidates, {extent(1, 4096, 4096)}, limits);
  EXPECT_THAT(plan.scattered, ElementsAre(0, 2));
  EXPECT_THAT(plan.reads, ElementsAre(DedupRead{1, 4096, 8192, {}, {0}},
                                      DedupRead{1, 65'536, 73'728, {Part{1, 0, 0, 8192}}}));
}

TEST(ExactCover, NeedsWholePiecesWithMatchingCrc) {
  std::vector<FragmentPlace> pieces(3);
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].offset = 10 * i;
    pieces[i].length = 10;
    pieces[i].crc32c = static_cast<uint32_t>(7 + i);
  }
  EXPECT_THAT(exact_cover(pieces, 10, 10, 8), SizeIs(1));
  EXPECT_THAT(exact_cover(pieces, 10, 20, ckpt::base::crc32c_combine(8, 9, 10)), SizeIs(2));
  EXPECT_THAT(exact_cover(pieces, 10, 20, 8), SizeIs(0));
  EXPECT_THAT(exact_cover(pieces, 10, 15, 8), SizeIs(0));
  EXPECT_THAT(exact_cover(pieces, 5, 10, 8), SizeIs(0));
  EXPECT_THAT(exact_cover(pieces, 20, 20, 9), SizeIs(0));
  EXPECT_THAT(exact_cover(pieces, 30, 0, 0), SizeIs(0));
}

// Every stored byte is in exactly one part, every part is inside its read, and every read is
// bounded. Encoded fragments are never cut.
TEST(DedupPlan, ReadsEveryByteOnceInBoundedReads) {
  const uint64_t seed = 20'262;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<DedupCandidate> candidates(1 + random() % 4);
    for (size_t i = 0; i < candidates.size(); ++i) {
      candidates[i].fragment = i;
      for (uint64_t count = 1 + random() % 3; count > 0; --count) {
        FragmentPlace one = place(1 + random() % 2, random() % (1 << 20), 1 + random() % 300'000);
        if (random() % 2 == 0) {
          one.codec = 1;
          one.encoded_bytes = 1 + random() % (kMost - 2 * ckpt::kBlockBytes);
        }
        candidates[i].places.push_back(one);
      }
    }
    std::map<std::pair<size_t, size_t>, uint64_t> seen;
    for (const DedupRead& read : plan_dedup(candidates, {}, kLimits).reads) {
      ASSERT_EQ(read.begin % ckpt::kBlockBytes + read.end % ckpt::kBlockBytes, 0u);
      ASSERT_LE(read.end - read.begin, kMost);
      for (const Part& part : read.parts) {
        const FragmentPlace& stored = candidates[part.candidate].places[part.place];
        uint64_t& upto = seen[{part.candidate, part.place}];
        ASSERT_EQ(part.from, upto);
        upto += part.bytes;
        ASSERT_EQ(stored.segment, read.segment);
        ASSERT_LE(read.begin, stored.payload_offset + part.from);
        ASSERT_LE(stored.payload_offset + part.from + part.bytes, read.end);
        if (stored.codec != 0) {
          ASSERT_EQ(part.bytes, stored.encoded_bytes);
        }
      }
    }
    for (size_t i = 0; i < candidates.size(); ++i) {
      for (size_t j = 0; j < candidates[i].places.size(); ++j) {
        ASSERT_EQ((seen[{i, j}]), candidates[i].places[j].stored_bytes());
      }
    }
  }
}

}  // namespace
}  // namespace ckptd
