// Runs that continue with the survivors: the same losses as an undisturbed run, if a survivor holds
// every expert or the expert was saved when it was lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "tests/support/held_calls.h"
#include "tests/system/watched_run.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ElasticTest : public ContinueTest {};

TEST_F(ElasticTest, RankLossMidStepChangesNoBit) {
  const json report = run_continued("one.json", "4", saved_ + Flags{"--kill", "2@6"});
  ASSERT_EQ(report.at("failures").size(), 1u) << last_error_output_;
  const json& failure = report["failures"][0];
  EXPECT_EQ(failure.at("step"), 5);
  EXPECT_EQ(failure.at("ranks"), json({2}));
  EXPECT_EQ(failure.at("steps_lost"), 0);
  EXPECT_EQ(failure.at("group"), 3);
  const json& split = failure.at("split_ms");
  double parts = 0;
  for (const char* part : {"detect", "regroup", "plan", "migrate"}) {
    parts += split.at(part).get<double>();
  }
  EXPECT_NEAR(parts, failure.at("resumed_ms").get<double>(), 1e-3) << split.dump();
  EXPECT_GT(split.at("first_step"), 0);
  EXPECT_TRUE(failure.at("detected_ms").is_number()) << "it said when";
  EXPECT_GT(failure.at("bytes").at("memory").get<uint64_t>() +
                failure.at("bytes").at("disk").get<uint64_t>(),
            0u)
      << "its experts came from ckptd";
  // Each step has one slowest rank; rank 2 took part in the first five steps.
  uint64_t slowest = 0;
  ASSERT_EQ(report.at("rank_times").size(), 4u);
  for (const json& rank : report["rank_times"]) {
    EXPECT_EQ(rank.at("steps"), rank.at("rank") == 2 ? 5u : 12u) << rank.dump();
    EXPECT_GT(rank.at("waited_ms"), 0);
    slowest += rank.at("slowest").get<uint64_t>();
  }
  EXPECT_EQ(slowest, 12u);
  expect_undisturbed(report);
}

// The time of a kill from outside is unknown: the report says so instead of guessing.
TEST_F(ElasticTest, ReportMarksTimeOfExternalKillUnknown) {
  WatchedRun run = watch("outside.json", "4", twice_);
  ASSERT_TRUE(run.await_step(2));
  ASSERT_TRUE(run.signal_rank(2, SIGKILL));
  ASSERT_TRUE(run.await_group(3));
  const Ended ended = run.stop();
  const json report = read_report("outside.json");
  ASSERT_EQ(report.at("failures").size(), 1u) << ended.err;
  const json& failure = report["failures"][0];
  EXPECT_EQ(failure.at("ranks"), json({2}));
  EXPECT_TRUE(failure.at("detected_ms").is_null()) << failure.dump();
  EXPECT_GT(failure.at("resumed_ms"), 0) << "since its first sign";
  EXPECT_THAT(ended.err, HasSubstr("  not known  "));
}

TEST_F(ElasticTest, LossOfReplicatedExpertsReadsNothingFromCkptd) {
  const json report =
      run_continued("two.json", "6", twice_ + Flags{"--kill", "1@5", "--kill", "4@8"});
  ASSERT_EQ(report.at("failures").size(), 2u) << last_error_output_;
  for (const json& failure : report["failures"]) {
    EXPECT_EQ(failure.at("bytes").at("memory"), 0);
    EXPECT_EQ(failure.at("bytes").at("disk"), 0);
    EXPECT_EQ(failure.at("effective_replicas"), 2);
    EXPECT_EQ(failure.at("stale_units"), 0);
  }
  EXPECT_EQ(report.at("plt"), 0);
  expect_undisturbed(report);
}

// Segments reach the disk only after the survivors have continued. ckptd received all of step 4
// before the loss: on every rank's socket, the slabs of step 8 follow the seals of step 4.
TEST_F(ElasticTest, SurvivorsContinueBeforeSnapshotIsDurable) {
  Ckptd ckptd(folder_ / "data", {"--io", "pwritev"});
  ASSERT_TRUE(ckptd.await_ready());
  std::optional<ckpt::test::HeldCalls> held;
  held.emplace(ckptd.pid(), std::set<long>{SYS_fdatasync}, "/segments/");
  WatchedRun run = watch("held.json", "4",
                         twice_ + Flags{"--socket", "unix:" + ckptd.socket(), "--checkpoint-every",
                                        "4", "--kill", "2@10"});
  EXPECT_TRUE(run.await_group(3));
  const auto durable = [](const json& event) {
    return event.value("event", "") == "snapshot" && event.value("durable", false);
  };
  EXPECT_TRUE(held->await_one(std::chrono::minutes(1)));
  EXPECT_FALSE(run.has_event(durable));
  held.reset();
  EXPECT_TRUE(run.await([&](const json& event) {
    return durable(event) && event.at("step") == 4 && event.at("taken_in") == 1;
  }));
  const Ended ended = run.stop();
  const json report = read_report("held.json");
  ASSERT_EQ(report.at("failures").size(), 1u) << ended.err;
  EXPECT_EQ(report["failures"][0].at("bytes").at("disk"), 0);
  EXPECT_EQ(report.at("plt"), 0);
  EXPECT_EQ(report.at("checkpoints").at("each").at(0).at("step"), 4);
  EXPECT_GT(report["checkpoints"]["each"][0].at("bytes"), 0);
  expect_undisturbed(report);
}

// A rank dies while all wait for the last snapshot: the survivors report it saved only once it is
// durable.
TEST_F(ElasticTest, RunAwaitsLastSnapshotDespiteRankLoss) {
  Ckptd ckptd(folder_ / "data", {"--io", "pwritev"});
  ASSERT_TRUE(ckptd.await_ready());
  std::optional<ckpt::test::HeldCalls> held;
  held.emplace(ckptd.pid(), std::set<long>{SYS_fdatasync}, "/segments/");
  const Flags more = twice_ + Flags{"--socket", "unix:" + ckptd.socket()};
  WatchedRun run("moetrain", continue_flags("last.json", "4", "6", more), events_);
  EXPECT_TRUE(run.await([](const json& event) { return event.value("event", "") == "saving"; }));
  EXPECT_TRUE(run.signal_rank(2, SIGKILL));
  EXPECT_TRUE(run.await([](const json& event) {
    return event.value("event", "") == "training" && event.value("group", 0) == 3;
  }));
  const auto saved = [](const json& event) { return event.value("event", "") == "saved"; };
  EXPECT_TRUE(held->await_one(std::chrono::minutes(1)));
  EXPECT_FALSE(run.has_event(saved));
  held.reset();
  const Ended ended = run.program().wait();
  EXPECT_EQ(ended.code(), 0) << ended.err;
  const json report = read_report("last.json");
  ASSERT_EQ(report.at("checkpoints").at("each").size(), 1u) << ended.err;
  EXPECT_EQ(report["checkpoints"]["each"][0].at("step"), 6);
  expect_undisturbed(report);
}

// No --on-loss and no --placement is given: the defaults apply.
TEST_F(ElasticTest, SurvivorsContinueByDefault) {
  const Flags killed = {"--ranks", "2", "--steps", "9", "--checkpoint-every", "4", "--kill", "1@7"};
  const json report = train("default.json", killed);
  EXPECT_EQ(report.at("on_loss"), "continue");
  EXPECT_EQ(report.at("on_loss_reason"), "the default");
  ASSERT_EQ(report.at("failures").size(), 1u) << last_error_output_;
  EXPECT_EQ(report["failures"][0].at("group"), 1);
  EXPECT_EQ(report["failures"][0].at("steps_lost"), 0);
  EXPECT_GT(report.at("plt"), 0) << "its experts are of step 4";
}

// Down to one rank that holds every expert; ranks that join receive experts from it.
TEST_F(ElasticTest, LastRankContinuesAndAdmitsJoiners) {
  WatchedRun run = watch("alone.json", "3",
                         {"--placement", "frontier", "--slots", "8", "--min-replicas", "2",
                          "--kill", "0@3", "--kill", "1@5", "--join", "2@6"});
  EXPECT_TRUE(run.await_group(3));
  const Ended ended = run.stop();
  const json report = read_report("alone.json");
  ASSERT_EQ(report.at("failures").size(), 2u) << ended.err;
  EXPECT_EQ(report["failures"][1].at("group"), 1);
  EXPECT_EQ(report.at("plt"), 0);
  expect_undisturbed(report);
}

// Only the experts of the lost ranks roll back; the step count continues.
TEST_F(ElasticTest, OnlyLostExpertsRollBack) {
  const Flags killed = {"--checkpoint-every", "4", "--kill", "2@7", "--kill", "3@7"};
  const json report = run_continued("taken.json", "4", killed);
  ASSERT_EQ(report.at("failures").size(), 1u) << last_error_output_;
  const json& failure = report["failures"][0];
  EXPECT_EQ(failure.at("group"), 2);
  EXPECT_EQ(failure.at("steps_lost"), 0);
  // Half of 2 layers x 8 experts, weights and moments each, from step 4.
  EXPECT_EQ(failure.at("stale_units"), 16);
  EXPECT_GT(report.at("plt").get<double>(), 0);
  EXPECT_EQ(report.at("losses").size(), 12u);
  const auto baseline = undisturbed(kModel, 12);
  const auto after = bits(report);
  for (uint64_t step = 1; step <= 6; ++step) EXPECT_EQ(after.at(step), baseline.at(step)) << step;
  // No survivor had applied step 7, so it was repeated.
  EXPECT_NE(after.at(7), baseline.at(7)) << "older experts give other losses";
}

// Each death causes a membership change, in which the next rank dies one phase later. No rank
// trains before the last change.
TEST_F(ElasticTest, KillDuringMembershipChangeChangesNoBit) {
  for (const Flags& phases :
       {Flags{"join", "connect", "agree", "plan"}, Flags{"move", "commit", "restore", "settle"}}) {
    SCOPED_TRACE(phases[0]);
    Flags kills = saved_ + Flags{"--kill", "6@3"};
    for (size_t i = 0; i < phases.size(); ++i) {
      kills = kills + Flags{"--kill-in", std::to_string(5 - i) + "@" + phases[i]};
    }
    const json report = run_continued("phases.json", "7", kills);
    ASSERT_EQ(report.at("failures").size(), 1u) << last_error_output_;
    const json& failure = report["failures"][0];
    EXPECT_THAT(failure.at("ranks"), testing::UnorderedElementsAre(2, 3, 4, 5, 6));
    EXPECT_EQ(failure.at("group"), 2);
    expect_undisturbed(report);
  }
}

// The disk gets one expert per layer and checkpoint: most lost state is only in ckptd's memory.
TEST_F(ElasticTest, ShrinkAndRegrowLosesNoState) {
  WatchedRun run =
      watch("down.json", "4",
            saved_ + Flags{"--experts-per-checkpoint", "1", "--experts-per-snapshot", "all",
                           "--kill", "0@3", "--kill", "2@5", "--kill", "3@7", "--join", "3@8"});
  EXPECT_TRUE(run.await_group(4));
  const Ended ended = run.stop();
  const json report = read_report("down.json");
  ASSERT_EQ(report.at("failures").size(), 3u) << ended.err;
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
  EXPECT_THAT(ended.err, HasSubstr("with 4 ranks"));
  expect_undisturbed(report);
}

// The ranks' measurements differ, and joining ranks have none. Still all ranks continue with the
// same interval, the same K and the same number of failures.
TEST_F(ElasticTest, RanksAgreeOnAutomaticSettings) {
  WatchedRun run =
      watch("auto.json", "4",
            twice_ + Flags{"--checkpoint-every", "auto", "--experts-per-checkpoint", "auto",
                           "--experts-per-snapshot", "auto", "--kill", "2@21", "--join", "1@22"});
  EXPECT_TRUE(run.await_group(4));
  ASSERT_TRUE(run.signal_rank(0, SIGTERM));
  EXPECT_TRUE(run.await_group(3));
  const Ended ended = run.stop();
  std::map<uint64_t, std::vector<json>> agreed;  // by epoch
  for (const json& event : run.events()) {
    if (event.at("event") != "training") continue;
    json& settings = agreed[event.at("epoch")].emplace_back();
    for (const char* key : {"step", "failures", "training_ms", "checkpoint_every",
                            "experts_per_checkpoint", "experts_per_snapshot"}) {
      settings[key] = event.value(key, json());
    }
  }
  EXPECT_GE(agreed.size(), 3u) << "of a loss, of a joiner, of a departure: " << ended.err;
  for (const auto& [epoch, settings] : agreed) {
    EXPECT_THAT(settings, testing::Each(settings[0])) << "epoch " << epoch;
    EXPECT_GT(settings[0].at("checkpoint_every"), 0);
    EXPECT_EQ(settings[0].at("failures"), json()) << "replicas have made it good";
  }
  expect_undisturbed(read_report("auto.json"));
}

// The lineage already has a partial commit of the survivors' step, in which some experts are from
// older steps.
TEST_F(ElasticTest, StopAfterLossSavesEveryUnit) {
  const std::string store = folder_ / "store";
  WatchedRun run =
      watch("stopped.json", "3",
            saved_ + Flags{"--experts-per-checkpoint", "1", "--kill", "1@6", "--data-dir", store});
  ASSERT_TRUE(run.await([](const json& event) { return event.at("event") == "group_lost"; }));
  run.stop();
  const Ckptd daemon(store);
  const json shown = daemon.ctl({"show", "tiny@latest"}).json();
  EXPECT_GT(shown.at("step"), 5);
  for (const json& unit : shown.at("units")) {
    EXPECT_EQ(unit.at("version_step"), shown.at("step")) << unit.at("unit");
  }
}

TEST_F(ElasticTest, LeavingRankLosesNoState) {
  WatchedRun run = watch("drained.json", "3", {});
  ASSERT_TRUE(run.await_step(2));
  ASSERT_TRUE(run.signal_rank(1, SIGTERM));
  EXPECT_TRUE(run.await_group(2));
  const Ended ended = run.stop();
  EXPECT_THAT(ended.err, HasSubstr("rank 1 has left after step"));
  const json report = read_report("drained.json");
  EXPECT_EQ(report.at("plt"), 0);
  EXPECT_TRUE(report.at("failures").empty());
  ASSERT_EQ(report.at("changes").size(), 1u);
  EXPECT_EQ(report["changes"][0].at("left"), json({1}));
  EXPECT_EQ(report["changes"][0].at("group"), 2);
  EXPECT_GT(report["changes"][0].at("bytes_moved"), 0);
  expect_undisturbed(report);
}

TEST_F(ElasticTest, TwoLeavingRanksLoseNoState) {
  const json report = run_continued("leave.json", "4", {"--leave", "1@5", "--leave", "2@5"});
  for (const std::string rank : {"1", "2"}) {
    EXPECT_THAT(last_error_output_, HasSubstr("rank " + rank + " has left after step 5"));
  }
  EXPECT_EQ(report.at("plt"), 0);
  expect_undisturbed(report);
}

TEST_F(ElasticTest, LossOfAllRanksRestartsFromCheckpoint) {
  const json report =
      run_continued("all.json", "2", saved_ + Flags{"--kill", "0@6", "--kill", "1@6"});
  EXPECT_THAT(last_error_output_, HasSubstr("the last one; starting all again"));
  expect_undisturbed(report);
}

// The survivor of the first loss continues with older experts; the restart undoes that rollback.
TEST_F(ElasticTest, RestartUndoesEarlierRollback) {
  const json report = run_continued(
      "back.json", "2",
      {"--checkpoint-every", "4", "--plt-budget", "1", "--kill", "0@6", "--kill", "1@8"});
  ASSERT_EQ(report.at("failures").size(), 2u) << last_error_output_;
  EXPECT_EQ(report["failures"][0].at("group"), 1);
  EXPECT_EQ(report["failures"][1].at("step"), 7);
  EXPECT_EQ(report["failures"][1].at("steps_lost"), 3) << "steps 5 to 7";
  expect_undisturbed(report);
}

}  // namespace
}  // namespace systemtest
