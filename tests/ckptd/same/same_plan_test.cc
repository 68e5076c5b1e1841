#include "ckptd/same/same_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace ckptd {
namespace {

using ::testing::ElementsAre;
using Part = SameRead::Part;

constexpr uint64_t kMost = 16 * ckpt::kBlockBytes;

FragmentPlace place(ckpt::SegmentId segment, uint64_t payload_offset, uint64_t length) {
  FragmentPlace place;
  place.segment = segment;
  place.payload_offset = payload_offset;
  place.length = length;
  return place;
}

TEST(SamePlan, NeighboursAreReadTogetherInTheOrderOfTheDisk) {
  const std::vector<SameCandidate> candidates = {{0, {place(2, 8192, 100)}},
                                                 {1, {place(1, 4096, 4096), place(1, 8192, 10)}}};
  EXPECT_THAT(plan_same_reads(candidates, kMost),
              ElementsAre(SameRead{1, 4096, 12'288, {Part{1, 0, 0, 4096}, Part{1, 1, 0, 10}}},
                          SameRead{2, 8192, 12'288, {Part{0, 0, 0, 100}}}));
}

TEST(SamePlan, WhatLiesApartIsReadApart) {
  const std::vector<SameCandidate> candidates = {{0, {place(1, 4096, 10)}},
                                                 {1, {place(1, 1 << 20, 10)}}};
  EXPECT_THAT(plan_same_reads(candidates, kMost), ::testing::SizeIs(2));
}

// Every stored byte is in exactly one part, every part inside of its read, every read bounded; what
// is encoded is never cut.
TEST(SamePlan, EveryByteOnceInBoundedReads) {
  const uint64_t seed = 20'262;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<SameCandidate> candidates(1 + random() % 4);
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
    for (const SameRead& read : plan_same_reads(candidates, kMost)) {
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
