#include "client/ctl/view.h"

#include <gtest/gtest.h>

namespace ckptctl {
namespace {

TEST(Batches, HoldEveryByteOnceWithinReadSize) {
  const std::vector<WantedBytes> wanted = {
      {0, 0, 100, 0, 7}, {1, 3, 3 * kReadBytes + 5, 100, 8}, {2, 0, 0, 9, 9}, {3, 8, 16, 1000, 10}};
  std::vector<WantedBytes> joined;
  for (const auto& batch : in_batches(wanted)) {
    uint64_t bytes = 0;
    for (const WantedBytes& piece : batch) {
      bytes += piece.length;
      const bool continues = !joined.empty() && joined.back().tag == piece.tag;
      if (!continues) {
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

TEST(Batches, EmptyInputGivesNone) { EXPECT_TRUE(in_batches({}).empty()); }

// Forked at 10; lineage 1 went on to 25 and 30, which are abandoned; lineage 2 has 20 and 30.
TEST(OlderStep, FollowsLineageAndAncestorsUpToFork) {
  const auto commit = [](uint32_t lineage, uint64_t step, const char* level = "durable") {
    return Json{{"lineage", lineage}, {"step", step}, {"level", level}};
  };
  const Json log = {commit(2, 30), commit(2, 20),           commit(1, 30), commit(1, 25),
                    commit(1, 10), commit(1, 7, "damaged"), commit(1, 5)};
  View view;
  view.lineage = 2;
  for (const auto& [step, older] : {std::pair{30, 20}, {20, 10}, {10, 5}}) {
    view.step = static_cast<uint64_t>(step);
    view.path = {{2, view.step}, {1, 10}};
    EXPECT_EQ(older_step(view, log).value(), older) << "of " << step;
  }
  view.step = 5;
  EXPECT_EQ(older_step(view, log).value(), std::nullopt);
  EXPECT_FALSE(older_step(view, Json{{{"step", 1}}}).ok()) << "a log of another version";
}

}  // namespace
}  // namespace ckptctl
