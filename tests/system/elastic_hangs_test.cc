// Runs that continue while a rank or ckptd hangs, and the fate of that process when it stops
// hanging.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <map>

#include "tests/support/signals.h"
#include "tests/system/watched_run.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ElasticHangsTest : public ContinueTest {
 protected:
  // Every rank holds every expert: no rank's loss loses an expert.
  const Flags everywhere_ = {"--placement", "lazarus", "--slots", "8", "--min-replicas", "2"};

  static pid_t ckptd_of(const WatchedRun& run) {
    const auto children = run.program().children();
    const auto ckptd = std::ranges::find_if(
        children, [](const auto& child) { return child.arguments[0].ends_with("ckptd"); });
    return ckptd == children.end() ? -1 : ckptd->pid;
  }
};

// SIGSTOP, not SIGKILL: rank 2 resumes after the others have continued without it, rank 3 never.
TEST_F(ElasticHangsTest, ResumedRankLearnsItsEpochEndedAndRejoins) {
  WatchedRun run =
      watch("late.json", "4",
            everywhere_ + Flags{"--heartbeat-timeout-ms", "0", "--collective-timeout-ms", "1500",
                                "--loss-grace-ms", "1000"});
  ASSERT_TRUE(run.await_step(2));
  ASSERT_TRUE(run.signal_rank(2, SIGSTOP));
  ASSERT_TRUE(run.signal_rank(3, SIGSTOP));
  ASSERT_TRUE(run.await_group(2));
  ASSERT_TRUE(run.signal_rank(2, SIGCONT));
  EXPECT_TRUE(run.await([](const json& event) {
    return event.value("event", "") == "group_lost" && event.value("rank", 0) == 2 &&
           event.value("epoch", 0) == 1;
  }));
  EXPECT_TRUE(run.await_group(3)) << "it joins again, as a new one";
  const Ended ended = run.stop();
  const json report = read_report("late.json");
  expect_undisturbed(report);
  // Detection is timed from the last event of a lost rank, not from the decision of the survivors.
  ASSERT_GE(report.at("failures").size(), 1u);
  const json& failure = report["failures"][0];
  EXPECT_THAT(failure.at("ranks"), testing::UnorderedElementsAre(2, 3));
  uint64_t noticed = 0;
  std::map<uint32_t, uint64_t> heard;
  for (const json& event : run.events()) {
    const auto at = event.value("time_ns", uint64_t{0});
    const auto rank = event.value("rank", 0u);
    const bool lost = event.value("event", "") == "group_lost" && event.value("epoch", 0) == 1;
    if (lost && rank < 2) noticed = std::max(noticed, at);
    // An event that a rank was writing when stopped arrives when it resumes: not yet heard then.
    if (rank >= 2 && noticed == 0) heard[rank] = std::max(heard[rank], at);
  }
  const auto whole = static_cast<double>(noticed - std::min(heard[2], heard[3])) / 1e6;
  EXPECT_NEAR(failure.at("detected_ms").get<double>(), whole, 1e-3);
  EXPECT_NEAR(failure.at("split_ms").at("detect").get<double>(), whole, 1e-3);
}

// The connections of a stopped rank stay open, and the collectives would wait a minute.
TEST_F(ElasticHangsTest, StoppedRankIsDetectedByMissedHeartbeats) {
  WatchedRun run = watch("silent.json", "4", twice_ + Flags{"--heartbeat-timeout-ms", "2000"});
  ASSERT_TRUE(run.await_step(2));
  ASSERT_TRUE(run.signal_rank(2, SIGSTOP));
  ASSERT_TRUE(run.await_group(3));
  const Ended ended = run.stop();
  EXPECT_THAT(ended.err, HasSubstr("rank 2 hangs, silent for "));
  const json report = read_report("silent.json");
  ASSERT_EQ(report.at("failures").size(), 1u) << ended.err;
  EXPECT_EQ(report["failures"][0].at("ranks"), json({2}));
  EXPECT_EQ(report["failures"][0].at("group"), 3);
  EXPECT_FALSE(run.has_event([](const json& event) { return event.at("event") == "alive"; }));
  expect_undisturbed(report);
}

// The survivors ask a hanging ckptd for the new membership. Its replacement does not know which
// rank was lost, and first waits for that rank.
TEST_F(ElasticHangsTest, StoppedCkptdIsReplacedAfterRankLoss) {
  WatchedRun run = watch("stopped.json", "4",
                         twice_ + Flags{"--daemon-timeout-ms", "1000", "--loss-grace-ms", "2000"});
  ASSERT_TRUE(run.await_step(2));
  const pid_t ckptd = ckptd_of(run);
  ASSERT_TRUE(ckpt::test::send_signal(ckptd, SIGSTOP));
  ASSERT_TRUE(run.await_steps(2)) << "nobody needs it to train";
  ASSERT_TRUE(run.signal_rank(2, SIGKILL));
  ASSERT_TRUE(run.await_group(3));
  const Ended ended = run.stop();
  EXPECT_THAT(ended.err, HasSubstr("ckptd hangs: no answer on "));
  const json report = read_report("stopped.json");
  ASSERT_EQ(report.at("failures").size(), 1u) << ended.err;
  EXPECT_EQ(report["failures"][0].at("group"), 3);
  expect_undisturbed(report);
}

TEST_F(ElasticHangsTest, SurvivorsContinueDespiteCkptdDeath) {
  const json report = run_continued(
      "daemon.json", "4",
      twice_ + Flags{"--kill", "1@6", "--kill-daemon", "5", "--loss-grace-ms", "2000"});
  EXPECT_EQ(report.at("failures").size(), 1u) << last_error_output_;
  expect_undisturbed(report);
}

// moetrain does not restart a ckptd that it did not start. Snapshots wait for that ckptd, training
// does not, and a membership change has to. Gloo may fail to tell a survivor of the loss
// (epoch_watch.h); while ckptd is stopped, only the timeout of the collective does. That timeout is
// shorter than this test's waits.
TEST_F(ElasticHangsTest, TrainingContinuesWhileExternalCkptdIsStopped) {
  Ckptd daemon(folder_ / "store");
  WatchedRun run =
      watch("others.json", "3",
            everywhere_ + Flags{"--socket", "unix:" + daemon.socket(), "--checkpoint-every", "5",
                                "--out-of-slabs", "skip", "--collective-timeout-ms", "15000"});
  uint64_t since = 0;
  const auto durable = [&] {
    return run.await([&](const json& event) {
      return event.at("event") == "snapshot" && event.value("durable", false) &&
             event.value("step", uint64_t{0}) > since;
    });
  };
  ASSERT_TRUE(durable());
  daemon.signal(SIGSTOP);
  ASSERT_TRUE(run.await([](const json& event) {
    return event.at("event") == "notice" && event.at("text").get<std::string>().find(
                                                "does not answer; retrying") != std::string::npos;
  }));
  ASSERT_TRUE(run.await_steps(5)) << "training goes on";
  // A membership change needs ckptd.
  const auto joins = [&] {
    return std::ranges::count_if(run.events(),
                                 [](const json& event) { return event.at("event") == "joining"; });
  };
  ASSERT_TRUE(run.signal_rank(1, SIGKILL));
  ASSERT_TRUE(run.program().await([&] { return joins() == 3 + 2; }));
  EXPECT_FALSE(run.has_event([](const json& event) { return event.value("goes_on", false); }));
  daemon.signal(SIGCONT);
  ASSERT_TRUE(run.await_group(2));
  since = run.newest_step();
  EXPECT_TRUE(durable());
  const Ended ended = run.stop();
  EXPECT_THAT(ended.err, HasSubstr("answers again"));
  const json report = read_report("others.json");
  ASSERT_EQ(report.at("failures").size(), 1u) << ended.err;
  EXPECT_EQ(report["failures"][0].at("ranks"), json({1}));
  EXPECT_EQ(report["failures"][0].at("group"), 2);
  expect_undisturbed(report);
  EXPECT_EQ(daemon.ctl({"verify"}).code(), 0);
}

}  // namespace
}  // namespace systemtest
