// Durations that the calls of `wait` may take.
#include "client/ctl/wait_time.h"

#include <gtest/gtest.h>

namespace ckptctl {
namespace {

using std::chrono::milliseconds;

constexpr WaitTime::Clock::time_point kStart{std::chrono::hours(1)};

TEST(WaitTimeTest, CallsEndAtTimeout) {
  const WaitTime time(milliseconds(2'500), kStart);
  EXPECT_EQ(time.ms_left(kStart), 2'500u);
  EXPECT_EQ(time.ms_left_at_first(kStart), 2'500u);
  EXPECT_EQ(time.ms_left(kStart + milliseconds(2'490)), 10u);
  EXPECT_FALSE(time.over(kStart + milliseconds(2'499)));
  EXPECT_TRUE(time.over(kStart + milliseconds(2'500)));
  EXPECT_EQ(time.ms_left(kStart + milliseconds(9'000)), 1u);
}

TEST(WaitTimeTest, FirstQueryGetsOneSecondDespiteShorterTimeout) {
  const WaitTime time(milliseconds(10), kStart);
  EXPECT_EQ(time.ms_left_at_first(kStart), 1'000u);
  EXPECT_EQ(time.ms_left_at_first(kStart + milliseconds(990)), 10u) << "with the opening";
  EXPECT_EQ(time.ms_left_at_first(kStart + milliseconds(3'000)), 1u);
  EXPECT_EQ(time.ms_left(kStart), 10u);
  EXPECT_TRUE(time.over(kStart + milliseconds(10)));
}

TEST(WaitTimeTest, LongestTimeoutEnds) {
  const WaitTime time(std::chrono::nanoseconds::max(), kStart);
  EXPECT_FALSE(time.over(kStart));
  EXPECT_EQ(time.ms_left(kStart), UINT32_MAX);
}

}  // namespace
}  // namespace ckptctl
