#include "ckptd/dedup/newest_fragments.h"

#include <gtest/gtest.h>

#include "formats/base/crc32c.h"

namespace ckptd {
namespace {

ckpt::ExtentFragment fragment(ckpt::UnitId unit, uint64_t offset, uint64_t length, uint32_t crc) {
  ckpt::ExtentFragment fragment;
  fragment.unit = unit;
  fragment.offset = offset;
  fragment.length = length;
  fragment.crc32c = crc;
  return fragment;
}

TEST(NewestFragments, KnowsExactlyTheRangesOfTheNewestVersion) {
  NewestFragments newest;
  EXPECT_FALSE(newest.knows(7));
  newest.set(7, {{100, 50, 0xbb}, {0, 100, 0xaa}});
  EXPECT_TRUE(newest.knows(7));
  EXPECT_TRUE(newest.may_have(fragment(7, 0, 100, 0xaa)));
  EXPECT_TRUE(newest.may_have(fragment(7, 100, 50, 0xbb)));
  EXPECT_FALSE(newest.may_have(fragment(7, 0, 100, 0xbb)));
  EXPECT_FALSE(newest.may_have(fragment(7, 0, 99, 0xaa)));
  EXPECT_FALSE(newest.may_have(fragment(7, 1, 99, 0xaa)));
  EXPECT_FALSE(newest.may_have(fragment(7, 150, 50, 0xbb)));
  EXPECT_FALSE(newest.may_have(fragment(8, 0, 100, 0xaa)));
}

// Adjacent pieces match one fragment of their whole range, by the combined CRC32C.
TEST(NewestFragments, AdjacentPiecesMatchOneFragment) {
  NewestFragments newest;
  newest.set(1, {{0, 100, 0xaa}, {100, 50, 0xbb}, {150, 10, 0xcc}});
  const uint32_t two = ckpt::base::crc32c_combine(0xaa, 0xbb, 50);
  EXPECT_TRUE(newest.may_have(fragment(1, 0, 150, two)));
  EXPECT_FALSE(newest.may_have(fragment(1, 0, 160, two)));
  EXPECT_FALSE(newest.may_have(fragment(1, 0, 140, two)));
}

TEST(NewestFragments, ForgottenUnitIsUnknown) {
  NewestFragments newest;
  newest.set(3, {{0, 1, 0xaa}});
  newest.forget(3);
  EXPECT_FALSE(newest.knows(3));
  EXPECT_FALSE(newest.may_have(fragment(3, 0, 1, 0xaa)));
}

}  // namespace
}  // namespace ckptd
