// Runs that continue while a rank has no state yet, or has stale state; and the end of a run whose
// ranks are all asked to leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/signals.h"
#include "tests/system/watched_run.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class ElasticNewcomersTest : public ContinueTest {
 protected:
  const Flags checked_ = twice_ + Flags{"--check-replicas", "1"};

  // Number of events of this kind; of this epoch and rank only, if given.
  static int64_t count(WatchedRun& run, const std::string& kind, int epoch = -1, int rank = -1) {
    return std::ranges::count_if(run.events(), [&](const json& line) {
      return line.value("event", "") == kind && (epoch < 0 || line.value("epoch", 0) == epoch) &&
             (rank < 0 || line.value("rank", 0) == rank);
    });
  }
};

// The returning rank is at the same step as the survivors. But the survivors have initialised again
// the experts that only this rank and the dead rank held, so its state is stale.
TEST_F(ElasticNewcomersTest, StaleRankRejoinsWithoutState) {
  WatchedRun run = watch("stale.json", "4",
                         checked_ + Flags{"--checkpoint-every", "5", "--loss-grace-ms", "1000"});
  ASSERT_TRUE(run.await_step(6));
  ASSERT_TRUE(run.signal_rank(3, SIGSTOP));
  ASSERT_TRUE(run.signal_rank(2, SIGKILL));
  // Within the grace of rank 3. Rank 0 then holds up the survivors' epoch until rank 3 joins.
  ASSERT_TRUE(run.program().await([&] { return count(run, "connecting", 2, 0) > 0; }));
  ASSERT_TRUE(run.signal_rank(0, SIGSTOP));
  const int64_t joined = count(run, "joining", -1, 3);
  ASSERT_TRUE(run.signal_rank(3, SIGCONT));
  EXPECT_TRUE(run.program().await([&] { return count(run, "joining", -1, 3) > joined; }));
  ASSERT_TRUE(run.signal_rank(0, SIGCONT));
  EXPECT_TRUE(run.await_group(3));
  const Ended ended = run.stop();
  const json report = read_report("stale.json");
  ASSERT_FALSE(report.at("changes").empty()) << ended.err;
  EXPECT_EQ(report["changes"][0].at("joined"), json({3}));
  EXPECT_EQ(report.at("losses").size(), report.at("losses").back().at("step"));
}

TEST_F(ElasticNewcomersTest, LossDuringJoinChangesNoBit) {
  for (const std::string kill : {"0@agree", "3@move"}) {
    SCOPED_TRACE(kill);
    WatchedRun run = watch("joined.json", "3",
                           {"--placement", "lazarus", "--slots", "6", "--min-replicas", "2",
                            "--join", "1@3", "--kill-in", kill});
    EXPECT_TRUE(run.await_group(3));
    const Ended ended = run.stop();
    const json report = read_report("joined.json");
    ASSERT_EQ(report.at("failures").size(), 1u) << ended.err;
    EXPECT_EQ(report["failures"][0].at("group"), 3);
    expect_undisturbed(report);
  }
}

// The run is past step 4 when the rank joins: the rank dies in its first step.
TEST_F(ElasticNewcomersTest, LateJoinerIsStillKilled) {
  WatchedRun run = watch("late.json", "2", saved_ + Flags{"--join", "1@3", "--kill", "2@4"});
  EXPECT_TRUE(run.await_group(2));
  const Ended ended = run.stop();
  const json report = read_report("late.json");
  ASSERT_EQ(report.at("failures").size(), 1u) << ended.err;
  EXPECT_EQ(report["failures"][0].at("group"), 2);
  expect_undisturbed(report);
}

TEST_F(ElasticNewcomersTest, UnfiredFaultInjectionFailsRun) {
  const Ended ended =
      run("moetrain", continue_flags("never.json", "4", "12",
                                     checked_ + Flags{"--kill-in", "1@plan", "--kill-in",
                                                      "1@commit", "--kill", "2@4"}));
  EXPECT_EQ(ended.code(), 1) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("--kill-in 1@commit did not happen"));
  EXPECT_THAT(ended.err, Not(HasSubstr("1@plan did not")));
  EXPECT_EQ(read_report("never.json").at("losses").size(), 12u);
}

TEST_F(ElasticNewcomersTest, LossOfAllButJoinerRestartsAllRanks) {
  WatchedRun run =
      watch("left.json", "2",
            saved_ + Flags{"--join", "1@3", "--kill-in", "0@agree", "--kill-in", "1@agree"});
  EXPECT_TRUE(run.await_group(3)) << "it joins those that have resumed";
  const Ended ended = run.stop();
  EXPECT_THAT(ended.err, HasSubstr("the last one; starting all again"));
  expect_undisturbed(read_report("left.json"));
}

TEST_F(ElasticNewcomersTest, RunSurvivesRankLossBeforeTraining) {
  for (const char* when : {"starting", "connecting"}) {
    SCOPED_TRACE(when);
    WatchedRun run = watch("first.json", "4", checked_);
    pid_t pid = -1;
    ASSERT_TRUE(run.program().await_children([&] {
      pid = pid_of(run.program(), 2);
      return pid > 0 && (when == std::string("starting") || count(run, when) > 0);
    }));
    ASSERT_TRUE(ckpt::test::send_signal(pid, SIGKILL));
    EXPECT_TRUE(run.program().await_error_output("rank 2 is lost"));
    EXPECT_TRUE(run.await_steps(2));
    const Ended ended = run.stop();
    expect_undisturbed(read_report("first.json"));
  }
}

TEST_F(ElasticNewcomersTest, AllJoinersAreAdmitted) {
  WatchedRun run = watch("many.json", "1", {"--join", "4@2"});
  EXPECT_TRUE(run.program().await_error_output("with 5 ranks"));
  run.stop();
}

TEST_F(ElasticNewcomersTest, FailedJoinDoesNotEndRun) {
  WatchedRun run = watch("alone.json", "1", {"--join", "1@300"});
  ASSERT_TRUE(run.await([](const json& event) { return event.at("event") == "joining"; }));
  std::filesystem::remove(data_);  // the first rank has read it
  EXPECT_TRUE(
      run.program().await_error_output("rank 1 could not join, the others continue without it"));
  const Ended ended = run.stop();
  EXPECT_THAT(ended.err, HasSubstr("text.txt"));
  EXPECT_TRUE(read_report("alone.json").at("failures").empty());
}

TEST_F(ElasticNewcomersTest, RunStopsWhenAllRanksLeave) {
  WatchedRun run = watch("short.json", "1", {});
  ASSERT_TRUE(run.await_step(3));
  ASSERT_TRUE(run.signal_rank(0, SIGTERM));
  const Ended ended = run.program().wait();
  EXPECT_EQ(ended.code(), 128 + SIGTERM) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("stopped as its ranks were asked to stop after step"));
}

}  // namespace
}  // namespace systemtest
