#include "trainer/checkpoint/daemon_patience.h"

#include <gtest/gtest.h>

namespace moetrain {
namespace {

using std::chrono::hours;

TEST(DaemonPatienceTest, DeadlineEndsCallsOfAnAnsweringCkptd) {
  DaemonPatience patience;
  EXPECT_FALSE(patience.over());
  {
    const DaemonPatience::Deadline past(patience, DaemonPatience::Clock::now());
    const DaemonPatience::Limit limit(patience, DaemonPatience::kTrainingMs);
    EXPECT_TRUE(patience.over());
    EXPECT_FALSE(limit.over()) << "ckptd is not to blame";
  }
  const DaemonPatience::Deadline later(patience, DaemonPatience::Clock::now() + hours(1));
  EXPECT_FALSE(patience.over());
}

TEST(DaemonPatienceTest, LongWaitIsReportedOnceDuringWait) {
  DaemonPatience patience;
  int calls = 0;
  {
    const DaemonPatience::LongWait later(patience, hours(1), [&] { ++calls; });
    EXPECT_FALSE(patience.ends_call());
    EXPECT_EQ(calls, 0);
  }
  {
    const DaemonPatience::LongWait now(patience, hours(0), [&] { ++calls; });
    EXPECT_FALSE(patience.ends_call());
    EXPECT_FALSE(patience.ends_call());
    EXPECT_EQ(calls, 1);
  }
  const DaemonPatience::LongWait short_one(patience, hours(0), [&] { ++calls; });
  EXPECT_EQ(calls, 1) << "nobody waited";
}

TEST(DaemonPatienceTest, WorkBetweenWaitsDoesNotCountAsWait) {
  using std::chrono::milliseconds;
  DaemonPatience patience;
  int calls = 0;
  DaemonPatience::Clock::time_point now = DaemonPatience::Clock::now();
  const DaemonPatience::LongWait wait(patience, milliseconds(150), [&] { ++calls; });
  const auto ask_after = [&](int ms) {
    now += milliseconds(ms);
    EXPECT_FALSE(patience.ends_call(now));
  };
  for (int slab = 0; slab < 10; ++slab) ask_after(600);  // each is copied
  EXPECT_EQ(calls, 0);
  for (int asks = 0; asks < 2; ++asks) ask_after(50);
  EXPECT_EQ(calls, 0) << "100 ms";
  ask_after(50);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace moetrain
