// Runs that go on with whoever is left: the same losses as if nothing had happened, as long as
// every expert is held by a survivor or was saved when it was lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "tests/system/training.h"

namespace systemtest {
namespace {

using nlohmann::json;

using Flags = std::vector<std::string>;

Flags operator+(Flags a, const Flags& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class ElasticTest : public TrainingTest {
 protected:
  static constexpr uint64_t kSteps = 12;
  // Eight experts and sequences: enough for eight ranks. These come after the usual ones and win.
  static Flags same(uint64_t steps) {
    return {"--experts", "8", "--batch", "8", "--steps", std::to_string(steps)};
  }
  const Flags same_ = same(kSteps);
  // Whatever is lost was just saved.
  const Flags saved_ = {"--checkpoint-every", "1", "--checkpoint-wait", "durable"};
  const Flags twice_ = {"--placement", "lazarus", "--slots", "4", "--min-replicas", "2"};

  json go_on(const std::string& report, const std::string& ranks, const Flags& more) {
    return train(report, same_ + Flags{"--ranks", ranks, "--on-loss", "continue"} + more);
  }
  // Of a run that nothing happens to, by step.
  std::map<uint64_t, std::string> undisturbed() {
    return bits(train("undisturbed.json", same_ + Flags{"--ranks", "2"}));
  }
};

TEST_F(ElasticTest, OneLostInTheMiddleOfAStepChangesNoBit) {
  const json report = go_on("one.json", "4", saved_ + Flags{"--kill", "2@6"});
  ASSERT_EQ(report.at("failures").size(), 1u) << last_error_output_;
  const json& failure = report["failures"][0];
  EXPECT_EQ(failure.at("step"), 5);
  EXPECT_EQ(failure.at("ranks"), json({2}));
  EXPECT_EQ(failure.at("steps_lost"), 0);
  EXPECT_EQ(failure.at("group"), 3);
  EXPECT_GT(failure.at("bytes").at("memory").get<uint64_t>() +
                failure.at("bytes").at("disk").get<uint64_t>(),
            0u)
      << "its experts came from ckptd";
  // Each step has one rank that the others waited for; rank 2 was in the first five.
  uint64_t slowest = 0;
  ASSERT_EQ(report.at("rank_times").size(), 4u);
  for (const json& rank : report["rank_times"]) {
    EXPECT_EQ(rank.at("steps"), rank.at("rank") == 2 ? 5u : kSteps) << rank.dump();
    EXPECT_GT(rank.at("waited_ms"), 0);
    slowest += rank.at("slowest").get<uint64_t>();
  }
  EXPECT_EQ(slowest, kSteps);
  EXPECT_EQ(bits(report), undisturbed());
}

TEST_F(ElasticTest, TwoWhoseExpertsSurviveCostNothingFromCkptd) {
  const json report = go_on("two.json", "6", twice_ + Flags{"--kill", "1@5", "--kill", "4@8"});
  ASSERT_EQ(report.at("failures").size(), 2u) << last_error_output_;
  for (const json& failure : report["failures"]) {
    EXPECT_EQ(failure.at("bytes").at("memory"), 0);
    EXPECT_EQ(failure.at("bytes").at("disk"), 0);
    EXPECT_EQ(failure.at("effective_replicas"), 2);
    EXPECT_EQ(failure.at("stale_units"), 0);
  }
  EXPECT_EQ(report.at("plt"), 0);
  EXPECT_EQ(bits(report), undisturbed());
}

// The last one holds every expert; those that come after it are given theirs.
TEST_F(ElasticTest, OneThatIsLeftAloneGoesOnAndLetsOthersIn) {
  const json report = go_on("alone.json", "3",
                            Flags{"--placement", "frontier", "--slots", "8", "--min-replicas", "2",
                                  "--kill", "0@3", "--kill", "1@5", "--join", "2@6"});
  ASSERT_EQ(report.at("failures").size(), 2u) << last_error_output_;
  EXPECT_EQ(report["failures"][1].at("group"), 1);
  EXPECT_EQ(report.at("plt"), 0);
  EXPECT_EQ(bits(report), undisturbed());
}

// Only what they took with them is older than the rest; the steps go on.
TEST_F(ElasticTest, TwoThatTakeExpertsWithThemRollBackOnlyThose) {
  const Flags killed = {"--checkpoint-every", "4", "--kill", "2@7", "--kill", "3@7"};
  const json report = go_on("taken.json", "4", killed);
  ASSERT_EQ(report.at("failures").size(), 1u) << last_error_output_;
  const json& failure = report["failures"][0];
  EXPECT_EQ(failure.at("group"), 2);
  EXPECT_EQ(failure.at("steps_lost"), 0);
  // Half of 2 layers x 8 experts, weights and moments each, of step 4.
  EXPECT_EQ(failure.at("stale_units"), 16);
  EXPECT_GT(report.at("plt").get<double>(), 0);
  EXPECT_EQ(report.at("losses").size(), kSteps);
  const auto as_ever = undisturbed();
  const auto after = bits(report);
  for (uint64_t step = 1; step <= 6; ++step) EXPECT_EQ(after.at(step), as_ever.at(step)) << step;
  // Nobody had applied step 7, so it was done again.
  EXPECT_NE(after.at(7), as_ever.at(7)) << "older experts give other losses";
}

TEST_F(ElasticTest, AKillInEachPhaseOfAChangeChangesNoBit) {
  const auto expected = undisturbed();
  for (const std::string phase :
       {"join", "connect", "agree", "plan", "move", "commit", "restore", "settle"}) {
    SCOPED_TRACE(phase);
    const json report =
        go_on("phase.json", "4", saved_ + Flags{"--kill", "2@6", "--kill-in", "3@" + phase});
    ASSERT_EQ(report.at("failures").size(), 1u) << last_error_output_;
    EXPECT_EQ(report["failures"][0].at("group"), 2);
    EXPECT_EQ(bits(report), expected);
  }
}

// The disk gets one expert of each layer at a time: most of what is lost only ckptd's memory has.
TEST_F(ElasticTest, DownToOneAndBackUpLosesNoState) {
  const Flags longer = same(80);  // new processes take some steps to come
  const json report =
      train("down.json", longer + saved_ +
                             Flags{"--experts-per-checkpoint", "1", "--experts-per-snapshot", "all",
                                   "--ranks", "4", "--on-loss", "continue", "--kill", "0@3",
                                   "--kill", "2@5", "--kill", "3@7", "--join", "3@8"});
  ASSERT_EQ(report.at("failures").size(), 3u) << last_error_output_;
  EXPECT_EQ(report["failures"][2].at("group"), 1);
  for (const json& failure : report["failures"]) {
    EXPECT_GT(failure.at("bytes").at("memory"), 0);
    EXPECT_EQ(failure.at("stale_units"), 0);
    EXPECT_EQ(failure.at("lost_tokens"), 0);
  }
  EXPECT_EQ(report.at("experts_per_checkpoint"), 1) << "nothing was lost, so it need not grow";
  std::vector<uint32_t> joined;
  for (const json& change : report.at("changes")) {
    for (const uint32_t rank : change.at("joined")) joined.push_back(rank);
    EXPECT_GT(change.at("bytes_moved"), 0) << change.dump();
    EXPECT_GE(change.at("effective_replicas"), 1);
  }
  EXPECT_THAT(joined, testing::UnorderedElementsAre(4, 5, 6));
  EXPECT_EQ(report["changes"].back().at("group"), 4);
  EXPECT_THAT(last_error_output_, testing::HasSubstr("with 4 ranks"));
  EXPECT_EQ(bits(report), bits(train("undisturbed.json", longer + Flags{"--ranks", "2"})));
}

// What the ranks have measured differs, and joiners have measured nothing: still all go on with the
// same interval, the same K and the same failures.
TEST_F(ElasticTest, ThoseWhoGoOnAgreeOnWhatIsAutomatic) {
  const Flags longer = same(40);
  const json report =
      train("auto.json", longer + twice_ +
                             Flags{"--checkpoint-every", "auto", "--experts-per-checkpoint", "auto",
                                   "--experts-per-snapshot", "auto", "--ranks", "4", "--on-loss",
                                   "continue", "--events", folder_ / "events", "--kill", "2@21",
                                   "--join", "1@22", "--leave", "0@32"});
  std::map<uint64_t, std::vector<json>> agreed;  // by epoch
  for (const json& event : read_lines(folder_ / "events")) {
    if (event.at("event") != "training") continue;
    json& told = agreed[event.at("epoch")].emplace_back();
    for (const char* what : {"step", "failures", "training_ms", "checkpoint_every",
                             "experts_per_checkpoint", "experts_per_snapshot"}) {
      told[what] = event.value(what, json());
    }
  }
  EXPECT_GE(agreed.size(), 3u) << "of a loss, of a departure, maybe of a joiner";
  for (const auto& [epoch, told] : agreed) {
    EXPECT_THAT(told, testing::Each(told[0])) << "epoch " << epoch;
    EXPECT_GT(told[0].at("checkpoint_every"), 0);
    EXPECT_EQ(told[0].at("failures"), json()) << "replicas have made it good";
  }
  EXPECT_EQ(bits(report), bits(train("undisturbed.json", longer + Flags{"--ranks", "2"})));
}

// The survivors are at a step that the lineage has a partial commit of, with experts that are
// older.
TEST_F(ElasticTest, AStopRightAfterALossSavesAllThatIsLeft) {
  const std::string store = folder_ / "store";
  Program program(
      "moetrain",
      arguments("stopped.json",
                same(100'000) + saved_ +
                    Flags{"--experts-per-checkpoint", "1", "--ranks", "3", "--on-loss", "continue",
                          "--kill", "1@6", "--events", folder_ / "events", "--data-dir", store}));
  ASSERT_TRUE(await_line(folder_ / "events",
                         [](const json& event) { return event.at("event") == "group_lost"; }));
  program.signal(SIGINT);
  const Ended ended = program.wait();
  ASSERT_EQ(ended.code(), 130) << ended.err;
  const Ckptd daemon(store);
  const json shown = daemon.ctl({"show", "tiny@latest"}).json();
  EXPECT_GT(shown.at("step"), 5);
  for (const json& unit : shown.at("units")) {
    EXPECT_EQ(unit.at("version_step"), shown.at("step")) << unit.at("unit");
  }
}

TEST_F(ElasticTest, ARankThatIsAskedToLeaveTakesNothingWithIt) {
  Program program("moetrain",
                  arguments("drained.json", same_ + Flags{"--ranks", "3", "--on-loss", "continue",
                                                          "--events", folder_ / "events"}));
  ASSERT_TRUE(program.await([&] {
    const pid_t pid = pid_of(program, 1);
    return read_lines(folder_ / "events").size() > 12 && pid > 0 && ::kill(pid, SIGTERM) == 0;
  }));
  const Ended ended = program.wait();
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.err, testing::HasSubstr("rank 1 has left after step"));
  EXPECT_EQ(bits(read_report("drained.json")), undisturbed());
  const json report = read_report("drained.json");
  EXPECT_EQ(report.at("plt"), 0);
  EXPECT_TRUE(report.at("failures").empty());
  ASSERT_EQ(report.at("changes").size(), 1u);
  EXPECT_EQ(report["changes"][0].at("left"), json({1}));
  EXPECT_EQ(report["changes"][0].at("group"), 2);
  EXPECT_GT(report["changes"][0].at("bytes_moved"), 0);
}

TEST_F(ElasticTest, TwoThatLeaveAfterAStepTakeNothingWithThem) {
  const json report = go_on("leave.json", "4", {"--leave", "1@5", "--leave", "2@5"});
  for (const std::string rank : {"1", "2"}) {
    EXPECT_THAT(last_error_output_, testing::HasSubstr("rank " + rank + " has left after step 5"));
  }
  EXPECT_EQ(report.at("plt"), 0);
  EXPECT_EQ(bits(report), undisturbed());
}

TEST_F(ElasticTest, OneThatHangsIsLeftBehind) {
  Program program(
      "moetrain",
      arguments("hangs.json",
                same_ + Flags{"--placement", "lazarus", "--slots", "6", "--min-replicas", "2"} +
                    Flags{"--ranks", "3", "--on-loss", "continue", "--events", folder_ / "events",
                          "--collective-timeout-ms", "1500", "--loss-grace-ms", "1000"}));
  ASSERT_TRUE(program.await([&] {
    const pid_t pid = pid_of(program, 2);
    return read_lines(folder_ / "events").size() > 12 && pid > 0 && ::kill(pid, SIGSTOP) == 0;
  }));
  const Ended ended = program.wait();
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_EQ(bits(read_report("hangs.json")), undisturbed());
}

// Its connections stay open, and the collectives would wait a minute.
TEST_F(ElasticTest, AStoppedOneIsFoundByItsSilence) {
  Program program(
      "moetrain",
      arguments("silent.json", same_ + twice_ +
                                   Flags{"--ranks", "4", "--on-loss", "continue", "--events",
                                         folder_ / "events", "--heartbeat-timeout-ms", "1000"}));
  ASSERT_TRUE(program.await([&] {
    const pid_t pid = pid_of(program, 2);
    return read_lines(folder_ / "events").size() > 16 && pid > 0 && ::kill(pid, SIGSTOP) == 0;
  }));
  const Ended ended = program.wait();
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.err, testing::HasSubstr("rank 2 hangs, silent for 1."));
  const json report = read_report("silent.json");
  ASSERT_EQ(report.at("failures").size(), 1u) << ended.err;
  EXPECT_EQ(report["failures"][0].at("ranks"), json({2}));
  EXPECT_EQ(report["failures"][0].at("group"), 3);
  EXPECT_EQ(bits(report), undisturbed());
  for (const json& event : read_lines(folder_ / "events")) EXPECT_NE(event.at("event"), "alive");
}

// Nobody kills it: it comes to itself when the others have gone on without it.
TEST_F(ElasticTest, AStoppedOneThatIsContinuedLearnsThatItsEpochIsOver) {
  const Flags longer = same(200);
  const Flags patient = {"--ranks",
                         "3",
                         "--on-loss",
                         "continue",
                         "--events",
                         folder_ / "events",
                         "--heartbeat-timeout-ms",
                         "0",
                         "--collective-timeout-ms",
                         "1500",
                         "--loss-grace-ms",
                         "1000"};
  Program program(
      "moetrain",
      arguments("late.json", longer + Flags{"--placement", "lazarus", "--slots", "6"} + patient));
  pid_t pid = -1;
  const auto told = [&](const std::function<bool(const json&)>& wanted) {
    return std::ranges::any_of(read_lines(folder_ / "events"), wanted);
  };
  ASSERT_TRUE(program.await([&] {
    pid = pid_of(program, 2);
    return pid > 0 && told([](const json& event) { return event.value("step", 0) > 2; }) &&
           ::kill(pid, SIGSTOP) == 0;
  }));
  ASSERT_TRUE(program.await(
      [&] { return told([](const json& event) { return event.value("goes_on", false); }); }));
  ASSERT_EQ(::kill(pid, SIGCONT), 0);
  const Ended ended = program.wait();
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_TRUE(told([](const json& event) {
    return event.at("event") == "group_lost" && event.value("rank", 0) == 2 &&
           event.value("epoch", 0) == 1;
  })) << ended.err;
  EXPECT_EQ(bits(read_report("late.json")),
            bits(train("undisturbed.json", longer + Flags{"--ranks", "2"})));
}

TEST_F(ElasticTest, WithTheLastOneAllStartAgainFromTheNewestCheckpoint) {
  const json report = go_on("all.json", "2", saved_ + Flags{"--kill", "0@6", "--kill", "1@6"});
  EXPECT_THAT(last_error_output_, testing::HasSubstr("the last one; starting all again"));
  EXPECT_EQ(bits(report), undisturbed());
}

// The survivor of the first loss goes on with older experts, which the restart takes back.
TEST_F(ElasticTest, ARestartTakesAnEarlierRollBackBack) {
  const json report =
      go_on("back.json", "2", {"--checkpoint-every", "4", "--kill", "0@6", "--kill", "1@8"});
  ASSERT_EQ(report.at("failures").size(), 2u) << last_error_output_;
  EXPECT_EQ(report["failures"][0].at("group"), 1);
  EXPECT_EQ(report["failures"][1].at("step"), 7);
  EXPECT_EQ(report["failures"][1].at("steps_lost"), 3) << "steps 5 to 7";
  EXPECT_EQ(bits(report), undisturbed());
}

// Those that are left ask a ckptd that does not answer who is there to go on. Its successor has not
// seen who was lost, and waits for it first, 10 s.
TEST_F(ElasticTest, AStoppedCkptdIsReplacedWhenARankIsLost) {
  Program program(
      "moetrain",
      arguments("stopped.json", same_ + twice_ +
                                    Flags{"--ranks", "4", "--on-loss", "continue", "--events",
                                          folder_ / "events", "--daemon-timeout-ms", "2000"}));
  ASSERT_TRUE(program.await([&] {
    if (read_lines(folder_ / "events").size() < 16) return false;
    const auto children = program.children();
    const auto ckptd = std::ranges::find_if(
        children, [](const auto& child) { return child.arguments[0].ends_with("ckptd"); });
    return ckptd != children.end() && ::kill(ckptd->pid, SIGSTOP) == 0;
  }));
  const pid_t pid = pid_of(program, 2);
  ASSERT_TRUE(pid > 0 && ::kill(pid, SIGKILL) == 0);
  const Ended ended = program.wait();
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.err, testing::HasSubstr("ckptd hangs: no answer on "));
  const json report = read_report("stopped.json");
  ASSERT_EQ(report.at("failures").size(), 1u) << ended.err;
  EXPECT_EQ(report["failures"][0].at("group"), 3);
  EXPECT_EQ(bits(report), undisturbed());
}

TEST_F(ElasticTest, ADeadCkptdDoesNotKeepSurvivorsFromGoingOn) {
  const json report =
      go_on("daemon.json", "4", twice_ + Flags{"--kill", "1@6", "--kill-daemon", "5"});
  EXPECT_EQ(report.at("failures").size(), 1u) << last_error_output_;
  EXPECT_EQ(bits(report), undisturbed());
}

}  // namespace
}  // namespace systemtest
