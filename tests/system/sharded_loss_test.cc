// Runs with sharded experts whose ranks are lost, join and leave, on a real ckptd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/held_calls.h"
#include "tests/system/watched_run.h"
#include "trainer/comm/comm_thread.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// The ckptd of one run; its metrics count the evictions.
class MeteredCkptd : public Ckptd {
 public:
  explicit MeteredCkptd(const std::string& data_dir, const Flags& more = {})
      : Ckptd(data_dir, Flags{"--http", "127.0.0.1:0"} + more) {}

  Flags flags() const { return {"--socket", "unix:" + socket()}; }
  double evicted() { return metric("ckptd_memory_evictions_total"); }
};

class ShardedLossTest : public ContinueTest {
 protected:
  // Runs to the end, starting with `ranks` ranks, and returns the report. The losses must equal an
  // undisturbed run's. Without evictions at most one step is repeated.
  json survive(const std::string& ranks, const Flags& more) {
    MeteredCkptd ckptd(new_store());
    const json report = run_continued("sharded.json", ranks, every_step_ + ckptd.flags() + more);
    SCOPED_TRACE(last_error_output_);
    EXPECT_EQ(ckptd.evicted(), 0);
    expect_undisturbed(report);
    return report;
  }
  // Runs three ranks, of which one dies and is restarted. Returns the report.
  json restart(const Flags& more) {
    return train("restart.json", kModel + more +
                                     Flags{"--ranks", "3", "--steps", "12", "--kill", "1@6",
                                           "--on-loss", "restart", "--events", events_});
  }
  // A fourth rank joins three, and one rank dies meanwhile. Returns the report.
  json join_and_kill(const std::string& kill) {
    MeteredCkptd ckptd(new_store());
    WatchedRun run = watch("recut.json", "3",
                           every_step_ + ckptd.flags() + Flags{"--join", "1@3", "--kill-in", kill});
    EXPECT_TRUE(run.await_group(3));
    last_error_output_ = run.stop().err;
    EXPECT_EQ(ckptd.evicted(), 0);
    SCOPED_TRACE(last_error_output_);
    const json report = read_report("recut.json");
    expect_undisturbed(report);
    return report;
  }
  std::string new_store() { return folder_ / ("store" + std::to_string(++stores_)); }
  std::vector<json> trainings() const {
    std::vector<json> trainings;
    for (const json& event : read_lines(events_)) {
      if (event.value("event", "") == "training") trainings.push_back(event);
    }
    return trainings;
  }
  // The first three steps of the first ranks are traced, each with two restores and a re-shard of
  // each layer and micro-batch. Joining ranks are not traced.
  static void expect_traced_exchanges(const std::string& file, int64_t layers_and_batches) {
    const json trace = json::parse(read_file(file), nullptr, false);
    ASSERT_TRUE(trace.is_object());
    using Counts = std::map<std::string, int64_t>;
    std::map<std::pair<uint32_t, uint64_t>, Counts> exchanges;  // by rank and step
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X" || event.at("tid") != 1) continue;
      ++exchanges[{event.at("pid"), event.at("args").at("step")}][event.at("cat")];
    }
    std::map<std::pair<uint32_t, uint64_t>, Counts> expected;
    for (const uint32_t rank : {0u, 1u, 2u}) {
      for (const uint64_t step : {1u, 2u, 3u}) {
        expected[{rank, step}] = {{"restore", 2 * layers_and_batches},
                                  {"re-shard", layers_and_batches}};
      }
    }
    EXPECT_EQ(exchanges, expected);
  }
  // All ranks of the newest epoch report the same view.
  void expect_one_view(size_t ranks) const {
    const std::vector<json> all = trainings();
    ASSERT_FALSE(all.empty());
    uint64_t newest = 0;
    for (const json& event : all) newest = std::max(newest, event.at("epoch").get<uint64_t>());
    std::set<std::pair<uint64_t, uint64_t>> views;
    size_t restored_ranks = 0;
    for (const json& event : all) {
      if (event.at("epoch") != newest) continue;
      ++restored_ranks;
      EXPECT_TRUE(event.value("resumed", false)) << event.dump();
      views.emplace(event.at("view_lineage"), event.at("step"));
    }
    EXPECT_EQ(restored_ranks, ranks);
    EXPECT_EQ(views.size(), 1u);
  }

  const Flags sharded_ = {"--expert-state", "sharded"};
  // A snapshot of all experts at every step.
  const Flags every_step_ = sharded_ + Flags{"--checkpoint-every", "1"};

 private:
  int stores_ = 0;
};

TEST_F(ShardedLossTest, OneLostRankCostsOneStepAtMost) {
  const json report = survive("4", {"--kill", "2@6"});
  ASSERT_EQ(report.at("failures").size(), 1u);
  const json& failure = report["failures"][0];
  EXPECT_EQ(failure.at("ranks"), json({2}));
  EXPECT_EQ(failure.at("group"), 3);
  EXPECT_LE(failure.at("steps_lost"), 1);
  EXPECT_EQ(failure.at("lost_tokens"), 0);
  EXPECT_GT(failure.at("resumed_ms"), 0);
  EXPECT_GT(failure.at("split_ms").at("first_step"), 0);
  EXPECT_THAT(last_error_output_, HasSubstr("all 3 ranks return to step 5 of lineage 1 (epoch 2)"));
  expect_one_view(3);
}

TEST_F(ShardedLossTest, TwoLostRanksCostOneStepAtMost) {
  const json report = survive("4", {"--kill", "1@6", "--kill", "3@6"});
  for (const json& failure : report.at("failures")) EXPECT_LE(failure.at("steps_lost"), 1);
  ASSERT_FALSE(report["failures"].empty());
  EXPECT_EQ(report["failures"].back().at("group"), 2);
  expect_one_view(2);
}

// The kill hits any moment of a step. Ranks that have applied the step repeat it.
TEST_F(ShardedLossTest, ExternalKillCostsOneStepAtMost) {
  MeteredCkptd ckptd(new_store());
  WatchedRun run =
      watch("outside.json", "4", every_step_ + ckptd.flags() + Flags{"--placement", "laer"});
  ASSERT_TRUE(run.await_step(3));
  ASSERT_TRUE(run.signal_rank(2, SIGKILL));
  ASSERT_TRUE(run.await_group(3));
  ASSERT_TRUE(run.signal_rank(0, SIGKILL));
  ASSERT_TRUE(run.await_group(2));
  const Ended ended = run.stop();
  EXPECT_EQ(ckptd.evicted(), 0);
  const json report = read_report("outside.json");
  ASSERT_EQ(report.at("failures").size(), 2u) << ended.err;
  for (const json& failure : report["failures"]) EXPECT_LE(failure.at("steps_lost"), 1);
  expect_undisturbed(report);
}

// Rank 0 is held where its communication thread sends parts of experts, so no rank gets past that
// exchange. The rank that dies there is rank 0, or a rank that waits for rank 0.
TEST_F(ShardedLossTest, KillInsideExchangeCostsOneStepAtMost) {
  for (const uint32_t victim : {0u, 2u}) {
    SCOPED_TRACE(testing::Message() << "rank " << victim << " dies");
    MeteredCkptd ckptd(new_store());
    WatchedRun run =
        watch("exchange.json", "4", every_step_ + ckptd.flags() + Flags{"--placement", "laer"});
    ASSERT_TRUE(run.await_step(3));
    {
      ckpt::test::HeldCalls held(pid_of(run.program(), 0), {SYS_writev}, {},
                                 moetrain::CommThread::kName);
      ASSERT_TRUE(held.await_one(std::chrono::minutes(1)));
      ASSERT_TRUE(run.signal_rank(victim, SIGKILL));
    }
    ASSERT_TRUE(run.await_group(3));
    const Ended ended = run.stop();
    EXPECT_EQ(ckptd.evicted(), 0);
    const json report = read_report("exchange.json");
    ASSERT_EQ(report.at("failures").size(), 1u) << ended.err;
    EXPECT_EQ(report["failures"][0].at("ranks"), json({victim}));
    EXPECT_LE(report["failures"][0].at("steps_lost"), 1);
    EXPECT_THAT(ended.err, HasSubstr("all 3 ranks return to step "));
    expect_undisturbed(report);
    expect_one_view(3);
  }
}

TEST_F(ShardedLossTest, AllRanksRestartWithTheSameBits) {
  MeteredCkptd ckptd(new_store());
  const json report = restart(every_step_ + ckptd.flags());
  EXPECT_EQ(ckptd.evicted(), 0);
  expect_undisturbed(report);
  ASSERT_EQ(report.at("failures").size(), 1u);
  EXPECT_LE(report["failures"][0].at("steps_lost"), 1);
  EXPECT_FALSE(report["failures"][0].contains("group")) << "nobody went on";
  expect_one_view(3);
}

// Each death causes a recovery of its own, in which the next rank dies one phase later.
TEST_F(ShardedLossTest, KillInAnyRecoveryPhaseChangesNoBit) {
  for (const Flags& phases : {Flags{"join", "connect", "agree"}, Flags{"restore", "settle"}}) {
    SCOPED_TRACE(phases[0]);
    Flags kills = {"--kill", "5@6"};
    for (size_t i = 0; i < phases.size(); ++i) {
      kills = kills + Flags{"--kill-in", std::to_string(4 - i) + "@" + phases[i]};
    }
    const json report = survive("6", kills);
    ASSERT_EQ(report.at("failures").size(), 1u);
    EXPECT_EQ(report["failures"][0].at("ranks").size(), 1 + phases.size());
    EXPECT_LE(report["failures"][0].at("steps_lost"), 1);
    expect_one_view(5 - phases.size());
  }
}

// Rank 1's range is lost with it, in any phase; all ranks restore it from a view.
TEST_F(ShardedLossTest, KillInAnyRecutPhaseChangesNoBit) {
  for (const char* phase : {"join", "connect", "agree", "plan", "move", "commit"}) {
    SCOPED_TRACE(phase);
    const json report = join_and_kill(std::string("1@") + phase);
    for (const json& failure : report.at("failures")) EXPECT_LE(failure.at("steps_lost"), 1);
    EXPECT_THAT(last_error_output_, HasSubstr("all 3 ranks return to step "));
  }
}

// Until the commit the other ranks hold all ranges, so they continue unchanged.
TEST_F(ShardedLossTest, DyingJoinerCostsNoStep) {
  for (const char* phase : {"move", "commit"}) {
    SCOPED_TRACE(phase);
    const json report = join_and_kill(std::string("3@") + phase);
    for (const json& failure : report.at("failures")) EXPECT_EQ(failure.at("steps_lost"), 0);
    EXPECT_THAT(last_error_output_, Not(HasSubstr(" return to step ")));
  }
}

TEST_F(ShardedLossTest, JoinAndLeaveChangeNoBit) {
  MeteredCkptd ckptd(new_store());
  WatchedRun run =
      watch("changes.json", "2",
            every_step_ + ckptd.flags() + Flags{"--join", "2@3", "--placement", "laer"});
  EXPECT_TRUE(run.await_group(4));
  ASSERT_TRUE(run.signal_rank(0, SIGTERM));
  EXPECT_TRUE(run.await_group(3));
  ASSERT_TRUE(run.signal_rank(3, SIGTERM));
  EXPECT_TRUE(run.await_group(2));
  const Ended ended = run.stop();
  EXPECT_EQ(ckptd.evicted(), 0);
  const json report = read_report("changes.json");
  EXPECT_TRUE(report.at("failures").empty()) << ended.err;
  std::set<uint32_t> joined;
  std::set<uint32_t> left;
  for (const json& change : report.at("changes")) {
    for (const json& rank : change.at("joined")) joined.insert(rank.get<uint32_t>());
    for (const json& rank : change.at("left")) left.insert(rank.get<uint32_t>());
    EXPECT_GT(change.at("bytes_moved"), 0);
    EXPECT_GT(change.at("memory_bytes"), 0);
    EXPECT_LE(change.at("memory_bytes"), change.at("memory_bound"));
  }
  EXPECT_EQ(joined, (std::set<uint32_t>{2, 3}));
  EXPECT_LE(report.at("exchange").at("memory_bytes"), report["exchange"].at("memory_bound"));
  EXPECT_EQ(left, (std::set<uint32_t>{0, 3}));
  EXPECT_THAT(ended.err, Not(HasSubstr(" return to step ")));
  expect_undisturbed(report);
}

// Twelve experts: each of three or four ranks computes equally many, and every expert has one
// replica. So of each expert all parts but the replica's own are received, twice as weights in fp32
// and once as gradients in double.
TEST_F(ShardedLossTest, ExchangeBytesMatchGroupSize) {
  constexpr uint64_t kExperts = 12;
  constexpr uint64_t kElements = 3 * 16 * 24;
  constexpr uint64_t kLayersAndBatches = 2 * 2;
  const std::string trace = folder_ / "trace.json";
  model_ = {"--experts", "12", "--batch", "8", "--micro-batches", "2", "--layers", "2"};
  WatchedRun run =
      watch("bytes.json", "3", every_step_ + Flags{"--join", "1@3", "--schedule-trace", trace});
  ASSERT_TRUE(run.await_group(4));
  ASSERT_TRUE(run.signal_rank(0, SIGKILL));
  ASSERT_TRUE(run.await_group(3));
  const Ended ended = run.stop();
  std::map<uint32_t, uint64_t> group_of;  // by rank, of its newest epoch
  std::set<uint64_t> groups;
  for (const json& event : run.events()) {
    if (event.at("event") == "training") group_of[event.at("rank")] = event.at("group");
    if (event.at("event") != "step") continue;
    const uint64_t group = group_of.at(event.at("rank"));
    groups.insert(group);
    const uint64_t received = kExperts * (kElements - kElements / group) * 8 * kLayersAndBatches;
    EXPECT_EQ(event.at("restore_bytes"), received) << event.dump();
    EXPECT_EQ(event.at("reshard_bytes"), received) << event.dump();
  }
  EXPECT_EQ(groups, (std::set<uint64_t>{3, 4})) << ended.err;
  TrainingTest::expect_undisturbed(read_report("bytes.json"), model_);
  expect_traced_exchanges(trace, kLayersAndBatches);
}

TEST_F(ShardedLossTest, RunSurvivesLossAfterLeave) {
  const json report = survive("4", {"--leave", "1@3", "--kill", "2@7"});
  ASSERT_EQ(report.at("failures").size(), 1u);
  EXPECT_LE(report["failures"][0].at("steps_lost"), 1);
  EXPECT_EQ(report["failures"][0].at("group"), 2);
}

// The lost rank's staged bytes go with ckptd's memory: the newest complete view is older.
TEST_F(ShardedLossTest, CkptdDeathReturnsRanksToCompleteView) {
  const json report =
      run_continued("daemon.json", "3", every_step_ + Flags{"--kill", "1@7", "--kill-daemon", "6"});
  expect_undisturbed(report);
  ASSERT_EQ(report.at("failures").size(), 1u);
  EXPECT_EQ(report.at("daemon_failures").size(), 1u);
  EXPECT_THAT(last_error_output_, HasSubstr("all 2 ranks return to step "));
  expect_one_view(2);
}

// ckptd has memory for three arenas, not for four. So the arena of the restarted rank evicts slabs
// of the dead rank, whose parts of experts were in memory only. No rank then uses its own parts of
// these experts.
TEST_F(ShardedLossTest, EvictedSlabReturnsRanksToCompleteView) {
  MeteredCkptd ckptd(new_store(), {"--arena", "15MiB"});
  const json report = restart(every_step_ + ckptd.flags() +
                              Flags{"--experts-per-checkpoint", "1", "--experts-per-snapshot",
                                    "all", "--checkpoint-wait", "durable", "--plt-budget", "1"});
  EXPECT_GT(ckptd.evicted(), 0);
  ASSERT_EQ(report.at("failures").size(), 1u) << last_error_output_;
  const json& failure = report["failures"][0];
  EXPECT_EQ(failure.at("steps_lost"), 1);
  EXPECT_GT(failure.at("lost_tokens"), 0) << "the disk has older versions";
  EXPECT_THAT(last_error_output_, HasSubstr("resumed at step 5 (3 ranks, epoch 2, lineage 2)"));
  expect_one_view(3);
  std::set<json> stale;
  for (const json& event : trainings()) {
    if (event.value("resumed", false)) stale.insert(event.at("stale_units"));
  }
  ASSERT_EQ(stale.size(), 1u) << "each unit has one version on all ranks";
  EXPECT_EQ(failure.at("stale_units"), 3 * stale.begin()->size());
}

TEST_F(ShardedLossTest, LossBeforeFirstCheckpointRestartsFromSeed) {
  const json report = run_continued("seed.json", "3",
                                    sharded_ + Flags{"--checkpoint-every", "100", "--kill", "1@3"});
  expect_undisturbed(report);
  ASSERT_EQ(report.at("failures").size(), 1u);
  EXPECT_EQ(report["failures"][0].at("steps_lost"), 2);
  EXPECT_THAT(last_error_output_,
              HasSubstr("all 2 ranks begin again with step 1: no step is saved"));
}

TEST_F(ShardedLossTest, LastRankSavesAllExperts) {
  const json report = survive("2", {"--slots", "4", "--kill", "1@6"});
  EXPECT_EQ(report.at("failures")[0].at("group"), 1);
  EXPECT_EQ(report.at("checkpoints").at("each").back().at("step"), 12);
}

// Experts that the view has from older snapshots count as lost tokens, on all ranks alike.
TEST_F(ShardedLossTest, RanksAgreeOnViewOfPartialCheckpoints) {
  const json report = run_continued(
      "partial.json", "4", every_step_ + Flags{"--experts-per-checkpoint", "2", "--kill", "2@6"});
  ASSERT_EQ(report.at("failures").size(), 1u) << last_error_output_;
  EXPECT_GT(report["failures"][0].at("lost_tokens"), 0);
  expect_one_view(3);
}

}  // namespace
}  // namespace systemtest
