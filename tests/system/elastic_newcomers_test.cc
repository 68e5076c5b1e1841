// Runs that go on while somebody has no state yet, or state that does not count any more; and what
// they end with when everybody was asked to leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "tests/system/training.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

using Flags = std::vector<std::string>;

class ElasticNewcomersTest : public TrainingTest {
 protected:
  // A run of so many ranks that go on, of eight experts and sequences, with its events in a file.
  Flags elastic(const std::string& report, const std::string& ranks, const std::string& steps,
                const Flags& more) {
    std::filesystem::remove(events_);
    Flags flags = {"--experts", "8",   "--batch",   "8",        "--ranks",  ranks,
                   "--steps",   steps, "--on-loss", "continue", "--events", events_};
    flags.insert(flags.end(), more.begin(), more.end());
    return arguments(report, flags);
  }
  std::map<uint64_t, std::string> undisturbed(const std::string& steps) {
    return bits(train("undisturbed.json",
                      {"--experts", "8", "--batch", "8", "--ranks", "2", "--steps", steps}));
  }
  // So many events of this kind, of this epoch and rank if they are given.
  int64_t events(const std::string& kind, int epoch = -1, int rank = -1) const {
    const std::vector<json> lines = read_lines(events_);
    return std::ranges::count_if(lines, [&](const json& line) {
      return line.value("event", "") == kind && (epoch < 0 || line.value("epoch", 0) == epoch) &&
             (rank < 0 || line.value("rank", 0) == rank);
    });
  }

  static bool send(pid_t pid, int signal) { return pid > 0 && ::kill(pid, signal) == 0; }

  const std::string events_ = folder_ / "events";
  // Steps are long enough for a process to start meanwhile.
  const Flags slowly_ = {"--checkpoint-every", "1", "--checkpoint-wait", "durable"};
  const Flags twice_ = {"--placement",    "lazarus", "--slots",          "4",
                        "--min-replicas", "2",       "--check-replicas", "1"};
};

// It is at the same step as those that went on without it, and they have made the experts anew that
// both it and the dead one held.
TEST_F(ElasticNewcomersTest, OneThatComesBackWithinTheSameStepBringsNothing) {
  Flags flags = twice_;
  for (const char* flag : {"--checkpoint-every", "5", "--loss-grace-ms", "500"}) {
    flags.emplace_back(flag);
  }
  Program program("moetrain", elastic("stale.json", "4", "60", flags));
  ASSERT_TRUE(program.await([&] { return events("step") > 24; }));
  const pid_t behind = pid_of(program, 3);
  const pid_t survivor = pid_of(program, 0);
  ASSERT_TRUE(send(behind, SIGSTOP));
  ASSERT_TRUE(send(pid_of(program, 2), SIGKILL));
  // In the grace of the one that is stopped; then the survivors' epoch is held up until it asks.
  ASSERT_TRUE(program.await([&] { return events("connecting", 2, 0) > 0; }));
  ASSERT_TRUE(send(survivor, SIGSTOP));
  const int64_t joined = events("joining", -1, 3);
  ASSERT_TRUE(send(behind, SIGCONT));
  EXPECT_TRUE(program.await([&] { return events("joining", -1, 3) > joined; }));
  ASSERT_TRUE(send(survivor, SIGCONT));
  const Ended ended = program.wait();
  EXPECT_EQ(ended.code(), 0) << ended.err;
  const json report = read_report("stale.json");
  ASSERT_FALSE(report.at("changes").empty()) << ended.err;
  EXPECT_EQ(report["changes"][0].at("joined"), json({3}));
  EXPECT_EQ(report.at("losses").size(), 60u);
}

TEST_F(ElasticNewcomersTest, ALossWhileAJoinerIsTakenInChangesNoBit) {
  const auto expected = undisturbed("80");
  for (const std::string kill : {"0@agree", "3@move"}) {
    SCOPED_TRACE(kill);
    Flags flags = {"--placement", "lazarus", "--slots", "6",         "--min-replicas",
                   "2",           "--join",  "1@3",     "--kill-in", kill};
    flags.insert(flags.end(), slowly_.begin(), slowly_.end());
    const Ended ended = run("moetrain", elastic("joined.json", "3", "80", flags));
    ASSERT_EQ(ended.code(), 0) << ended.err;
    const json report = read_report("joined.json");
    ASSERT_EQ(report.at("failures").size(), 1u) << ended.err;
    EXPECT_EQ(report["failures"][0].at("group"), 3);
    EXPECT_EQ(bits(report), expected);
  }
}

// The step that it was to die in is long over when it is there: it dies in its first one.
TEST_F(ElasticNewcomersTest, AJoinerIsKilledThoughItComesLate) {
  Flags flags = {"--join", "1@3", "--kill", "2@4"};
  flags.insert(flags.end(), slowly_.begin(), slowly_.end());
  const Ended ended = run("moetrain", elastic("late.json", "2", "80", flags));
  ASSERT_EQ(ended.code(), 0) << ended.err;
  const json report = read_report("late.json");
  ASSERT_EQ(report.at("failures").size(), 1u) << ended.err;
  EXPECT_EQ(report["failures"][0].at("group"), 2);
}

TEST_F(ElasticNewcomersTest, WhatWasAskedForAndDidNotHappenIsAnError) {
  Flags flags = twice_;
  for (const char* flag : {"--kill-in", "1@plan", "--kill-in", "1@commit", "--kill", "2@4"}) {
    flags.emplace_back(flag);
  }
  const Ended ended = run("moetrain", elastic("never.json", "4", "12", flags));
  EXPECT_EQ(ended.code(), 1) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("--kill-in 1@commit did not happen"));
  EXPECT_THAT(ended.err, Not(HasSubstr("1@plan did not")));
  EXPECT_EQ(read_report("never.json").at("losses").size(), 12u);
}

TEST_F(ElasticNewcomersTest, WhereOnlyAJoinerIsLeftAllStartAgain) {
  Flags flags = {"--join", "1@3", "--kill-in", "0@agree", "--kill-in", "1@agree"};
  flags.insert(flags.end(), slowly_.begin(), slowly_.end());
  const Ended ended = run("moetrain", elastic("left.json", "2", "80", flags));
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("the last one; starting all again"));
  EXPECT_THAT(ended.err, HasSubstr("with 3 ranks")) << "it joins those that have resumed";
  EXPECT_EQ(bits(read_report("left.json")), undisturbed("80"));
}

TEST_F(ElasticNewcomersTest, ALossBeforeTheFirstEpochTrainsIsMadeGood) {
  for (const char* when : {"starting", "connecting"}) {
    SCOPED_TRACE(when);
    Program program("moetrain", elastic("first.json", "4", "12", twice_));
    pid_t pid = -1;
    ASSERT_TRUE(program.await([&] {
      pid = pid_of(program, 2);
      return pid > 0 && (when == std::string("starting") || events(when) > 0);
    }));
    ASSERT_TRUE(send(pid, SIGKILL));
    const Ended ended = program.wait();
    EXPECT_EQ(ended.code(), 0) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("rank 2 is lost"));
    EXPECT_EQ(bits(read_report("first.json")), undisturbed("12"));
  }
}

TEST_F(ElasticNewcomersTest, ThereIsRoomForAllWhoJoin) {
  Program program("moetrain", elastic("many.json", "1", "100000", {"--join", "4@2"}));
  EXPECT_TRUE(program.await_error_output("with 5 ranks"));
  program.signal(SIGTERM);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.code(), 128 + SIGTERM) << ended.err;
}

TEST_F(ElasticNewcomersTest, OneThatCannotJoinDoesNotEndTheRun) {
  Program program("moetrain", elastic("alone.json", "1", "100000", {"--join", "1@200"}));
  ASSERT_TRUE(program.await([&] { return events("step") > 0; }));
  std::filesystem::remove(data_);  // the first rank has read it
  EXPECT_TRUE(program.await_error_output("rank 1 could not join, the others go on without it"));
  program.signal(SIGTERM);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.code(), 128 + SIGTERM) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("text.txt"));
  EXPECT_TRUE(read_report("alone.json").at("failures").empty());
}

TEST_F(ElasticNewcomersTest, ARunThatAllWereAskedToLeaveHasStoppedShort) {
  Program program("moetrain", elastic("short.json", "1", "100000", {}));
  ASSERT_TRUE(program.await([&] { return events("step") > 3; }));
  ASSERT_TRUE(send(pid_of(program, 0), SIGTERM));
  const Ended ended = program.wait();
  EXPECT_EQ(ended.code(), 128 + SIGTERM) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("stopped as its ranks were asked to stop after step"));
}

}  // namespace
}  // namespace systemtest
