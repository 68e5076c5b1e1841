// Two jobs under one run name: the first one trains, the other one is refused.
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/system/watched_run.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class TwoJobsTest : public TrainingTest {
 protected:
  TwoJobsTest() : daemon_(folder_ / "store") {}
  void SetUp() override { ASSERT_TRUE(daemon_.await_ready()); }

  // Arguments of a run on this ckptd that does not end by itself.
  Flags endless(const std::string& report, const Flags& more, const std::string& ranks = "2") {
    return arguments(report, Flags{"--ranks", ranks, "--steps", "1000000", "--socket",
                                   "unix:" + daemon_.socket()} +
                                 more);
  }
  static void expect_refused(const Ended& ended) {
    EXPECT_EQ(ended.code(), 1) << ended.err;
    EXPECT_THAT(ended.err,
                AllOf(HasSubstr("run tiny: another job trains this run: process "),
                      HasSubstr("(moetrain rank "), HasSubstr("connected since "),
                      HasSubstr("train under another run name (moetrain --run), or wait")));
    EXPECT_EQ(ended.err.find("continuing after step"), std::string::npos) << ended.err;
  }

  Ckptd daemon_;
};

TEST_F(TwoJobsTest, SurplusRankOfSecondJobIsRefused) {
  const std::string events = folder_ / "events";
  WatchedRun first("moetrain", endless("first.json", {"--events", events}), events);
  ASSERT_TRUE(first.await_step(3)) << first.program().wait().err;
  expect_refused(run("moetrain", endless("second.json", {}, "3")));
  ASSERT_TRUE(first.await_steps(3));
  for (const char* change : {"group_lost", "regrouping"}) {
    EXPECT_FALSE(first.has_event([&](const json& event) { return event.at("event") == change; }))
        << change;
  }
  (void)first.stop();
}

TEST_F(TwoJobsTest, JobsThatStartTogetherDoNotMerge) {
  Program one("moetrain", endless("one.json", {}));
  Program other("moetrain", endless("other.json", {}));
  const bool one_trains = one.await([&] { return !other.running(); });
  Program& trains = one_trains ? one : other;
  expect_refused((one_trains ? other : one).wait());
  EXPECT_TRUE(trains.running());
  trains.signal(SIGTERM);
  const Ended ended = trains.wait();
  EXPECT_EQ(ended.code(), 128 + SIGTERM) << ended.err;
  EXPECT_EQ(ended.err.find("continuing after step"), std::string::npos) << ended.err;
}

TEST_F(TwoJobsTest, JobRestartsRightAfterSupervisorKill) {
  const std::string events = folder_ / "events";
  WatchedRun killed("moetrain",
                    endless("first.json", {"--checkpoint-every", "2", "--events", events}), events);
  ASSERT_TRUE(killed.await([](const json& event) {
    return event.at("event") == "snapshot" && event.value("durable", false);
  })) << killed.program().wait().err;
  killed.program().signal(SIGKILL);
  const std::string again_events = folder_ / "again_events";
  WatchedRun again("moetrain",
                   endless("again.json", {"--resume", "latest", "--events", again_events}),
                   again_events);
  EXPECT_TRUE(again.await_steps(2)) << again.program().wait().err;
  (void)again.stop();
}

}  // namespace
}  // namespace systemtest
