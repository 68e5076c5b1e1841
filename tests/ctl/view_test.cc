#include "client/ctl/view.h"

#include <gtest/gtest.h>

namespace ckptctl {
namespace {

TEST(Batches, HoldEveryByteOnceInOrderAndStayInMemory) {
  const std::vector<WantedBytes> wanted = {
      {0, 0, 100, 0, 7}, {1, 3, 3 * kReadBytes + 5, 100, 8}, {2, 0, 0, 9, 9}, {3, 8, 16, 1000, 10}};
  std::vector<WantedBytes> joined;
  for (const auto& batch : in_batches(wanted)) {
    uint64_t bytes = 0;
    for (const WantedBytes& piece : batch) {
      bytes += piece.length;
      const bool goes_on = !joined.empty() && joined.back().tag == piece.tag;
      if (!goes_on) {
        joined.push_back(piece);
        continue;
      }
      EXPECT_EQ(piece.offset, joined.back().offset + joined.back().length);
      EXPECT_EQ(piece.destination, joined.back().destination + joined.back().length);
      EXPECT_EQ(joined.back().length % 8, 0u) << "cut inside an element";
      joined.back().length += piece.length;
    }
    EXPECT_LE(bytes, kReadBytes);
  }
  ASSERT_EQ(joined.size(), 3u);  // nothing is read for nothing
  EXPECT_EQ(joined[0].length, 100u);
  EXPECT_EQ(joined[1].length, 3 * kReadBytes + 5);
  EXPECT_EQ(joined[2].length, 16u);
}

TEST(Batches, OfNothingAreNone) { EXPECT_TRUE(in_batches({}).empty()); }

}  // namespace
}  // namespace ckptctl
