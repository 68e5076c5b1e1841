#include "formats/base/outstanding.h"

#include <gtest/gtest.h>

namespace ckpt::base {
namespace {

TEST(OutstandingTest, CountsPairsOfBeginAndEnd) {
  Outstanding writes;
  EXPECT_TRUE(writes.none());
  writes.begun();
  writes.begun(4096);
  EXPECT_EQ(writes.count(), 4097u);
  writes.ended(4096);
  writes.ended();
  EXPECT_TRUE(writes.none());
}

TEST(OutstandingTest, EndWithoutBeginAborts) {
  Outstanding writes;
  writes.begun(3);
  EXPECT_DEATH(writes.ended(4), "outstanding_test.cc:.*more have ended than have begun");
}

}  // namespace
}  // namespace ckpt::base
