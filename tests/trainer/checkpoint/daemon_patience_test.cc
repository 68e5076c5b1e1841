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

}  // namespace
}  // namespace moetrain
