// The meaning of the flags of `moetrain run`: the options that supervisor and ranks get from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/cli/command_line.h"

namespace moetrain::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class RunFlagsTest : public testing::Test {
 protected:
  RunFlagsTest() { clear_environment(); }

  static ResolvedRun resolve(const Flags& flags, const RunFacts& facts = machine_facts()) {
    auto resolved = spec_of(flags).resolve(facts);
    EXPECT_TRUE(resolved.ok()) << resolved.error().message;
    return *std::move(resolved);
  }
};

TEST_F(RunFlagsTest, DefaultsToOneRank) {
  const ResolvedRun run = resolve({});
  const RankOptions& rank = run.options.rank;
  EXPECT_EQ(rank.run, "moetrain");
  EXPECT_EQ(rank.ranks, 1u);
  EXPECT_EQ(rank.steps, 100u);
  EXPECT_EQ(rank.checkpoint_every, 10u);
  EXPECT_EQ(rank.config.batch, 8u);
  EXPECT_EQ(rank.config.micro_batches, 1u);
  EXPECT_EQ(rank.placement.size(), rank.config.model.layers);
  EXPECT_THAT(rank.data, ElementsAre("book.txt"));
  EXPECT_TRUE(rank.elastic);
  EXPECT_EQ(rank.resume, CKPT_RESUME_START);
  EXPECT_TRUE(run.options.own_daemon);
  EXPECT_FALSE(run.options.keeps_data);
  EXPECT_EQ(run.options.on_loss_reason, "the default");
  EXPECT_EQ(run.needs, Fact::kNone);
  EXPECT_FALSE(run.done);
  EXPECT_THAT(run.notes, IsEmpty());
}

struct Meaning {
  Flags flags;
  bool (*holds)(const RunOptions&);
};

const Meaning kTraining[] = {
    {{"--ranks", "3"}, [](const RunOptions& o) { return o.rank.ranks == 3; }},
    {{"--steps", "7"}, [](const RunOptions& o) { return o.rank.steps == 7; }},
    {{"--run", "mine"}, [](const RunOptions& o) { return o.rank.run == "mine"; }},
    {{"--socket", "unix:/s"},
     [](const RunOptions& o) {
       return o.rank.socket == "unix:/s" && !o.own_daemon && o.keeps_data;
     }},
    {{"--device", "cuda:1"}, [](const RunOptions& o) { return o.rank.device == "cuda:1"; }},
    {{"--pin"}, [](const RunOptions& o) { return o.rank.pin; }},
    {{"--seed", "5"}, [](const RunOptions& o) { return o.rank.config.seed == 5; }},
    {{"--experts", "4"}, [](const RunOptions& o) { return o.rank.config.model.experts == 4; }},
    {{"--router-trace", "t.csv"},
     [](const RunOptions& o) { return o.rank.router_trace == "t.csv"; }},
    {{"--router-trace", "t.csv", "--router-trace-hold", "7"},
     [](const RunOptions& o) { return o.rank.config.model.router_trace_hold == 7; }},
    {{"--idle-experts", "skip"},
     [](const RunOptions& o) { return o.rank.config.adamw.idle_experts == IdleExperts::kSkip; }},
    {{"--precision", "bf16", "--device", "cuda"},
     [](const RunOptions& o) { return o.rank.config.precision == Precision::kBf16; }},
    {{"--checkpoint-every", "auto"}, [](const RunOptions& o) { return o.rank.checkpoint_auto; }},
    {{"--checkpoint-every", "0"},
     [](const RunOptions& o) { return !o.rank.checkpoint_auto && o.rank.checkpoint_every == 0; }},
    {{"--checkpoint-turns", "20"},
     [](const RunOptions& o) { return o.rank.checkpoint_turns == 20; }},
    {{"--out-of-slabs", "skip"}, [](const RunOptions& o) { return o.rank.skip_when_out_of_slabs; }},
    {{"--checkpoint-wait", "durable"}, [](const RunOptions& o) { return o.rank.wait_durable; }},
    {{"--unsaved-max", "100"},
     [](const RunOptions& o) {
       return o.unsaved.steps_max == 100u && !o.unsaved.ms_max && !o.unsaved.stop;
     }},
    {{"--unsaved-max", "10m", "--on-unsaved", "stop"},
     [](const RunOptions& o) {
       return o.unsaved.ms_max == 600'000u && !o.unsaved.steps_max && o.unsaved.stop;
     }},
    {{"--check-replicas", "4"},
     [](const RunOptions& o) { return o.rank.check_replicas_every == 4; }},
    {{"--data-dir", "d"}, [](const RunOptions& o) { return o.keeps_data; }},
    {{"--keep"}, [](const RunOptions& o) { return o.keeps_data; }},
    {{"--io", "pwritev"}, [](const RunOptions& o) { return o.io == "pwritev"; }},
    {{"--report", "r.json"}, [](const RunOptions& o) { return o.report_file == "r.json"; }},
    {{"--metrics", "m"},
     [](const RunOptions& o) { return o.metrics_file == "m" && o.rank.report_routing; }},
    {{"--events", "e"}, [](const RunOptions& o) { return o.events_file == "e"; }},
    {{"--json"}, [](const RunOptions& o) { return o.print_report; }},
};

const Meaning kChanges[] = {
    {{"--kill-daemon", "3"},
     [](const RunOptions& o) { return o.daemon_kills == std::vector<uint64_t>{3}; }},
    {{"--kill", "0@3"},
     [](const RunOptions& o) { return o.kills.size() == 1 && o.kills[0].step == 3; }},
    {{"--kill-in", "0@settle"},
     [](const RunOptions& o) {
       return o.phase_kills.size() == 1 && o.phase_kills[0].phase == "settle";
     }},
    {{"--join", "2@5", "--leave", "1@9"},
     [](const RunOptions& o) {
       return o.joins.size() == 1 && o.joins[0].count == 2 && o.leaves.size() == 1 &&
              o.leaves[0].rank == 1;
     }},
    {{"--loss-grace-ms", "120000"}, [](const RunOptions& o) { return o.rank.grace_ms == 120'000; }},
    {{"--collective-timeout-ms", "1"},
     [](const RunOptions& o) { return o.rank.collective_timeout_ms == 1; }},
    {{"--heartbeat-timeout-ms", "0"},
     [](const RunOptions& o) { return o.heartbeat_timeout_ms == 0; }},
    {{"--daemon-timeout-ms", "1000"},
     [](const RunOptions& o) { return o.daemon_timeout_ms == 1000; }},
    {{"--restarts-max", "2"}, [](const RunOptions& o) { return o.restarts_max == 2; }},
};

TEST_F(RunFlagsTest, EveryFlagReachesTheOptions) {
  const RunOptions none = resolve({}).options;
  const auto check = [&](const Meaning& meaning) {
    EXPECT_TRUE(meaning.holds(resolve(meaning.flags).options)) << meaning.flags.front();
    EXPECT_FALSE(meaning.holds(none)) << meaning.flags.front();
  };
  for (const Meaning& meaning : kTraining) check(meaning);
  for (const Meaning& meaning : kChanges) check(meaning);
}

TEST_F(RunFlagsTest, ParsesExpertsPerCheckpointAndSnapshot) {
  struct Case {
    Flags flags;
    uint32_t k;
    bool k_auto;
    uint32_t k_snapshot;
    bool k_snapshot_auto;
  };
  const Flags by_two = {"--experts-per-checkpoint", "2"};
  const auto with = [](Flags flags, const Flags& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  const Case cases[] = {
      {{}, 0, false, 0, false},
      {{"--experts-per-checkpoint", "all"}, 0, false, 0, false},
      {by_two, 2, false, 0, false},
      {{"--experts-per-checkpoint", "auto"}, 0, true, 0, false},
      {with(by_two, {"--experts-per-snapshot", "4"}), 2, false, 4, false},
      {with(by_two, {"--experts-per-snapshot", "all"}), 2, false, kAllExperts, false},
      {with(by_two, {"--experts-per-snapshot", "auto"}), 2, false, kAllExperts, true},
  };
  for (const Case& one : cases) {
    const PartialOptions partial = resolve(one.flags).options.rank.partial;
    EXPECT_EQ(partial.k, one.k);
    EXPECT_EQ(partial.k_auto, one.k_auto);
    EXPECT_EQ(partial.k_snapshot, one.k_snapshot);
    EXPECT_EQ(partial.k_snapshot_auto, one.k_snapshot_auto);
  }
}

TEST_F(RunFlagsTest, PartialCheckpointFlagsReachOptions) {
  const PartialOptions partial =
      resolve({"--experts-per-checkpoint", "2", "--selector", "load-aware", "--partial-parts",
               "weights", "--staleness-max", "9", "--plt-budget", "0.5", "--dense-sharding",
               "equal", "--on-loss", "restart"})
          .options.rank.partial;
  EXPECT_EQ(partial.selector, Selector::kLoadAware);
  EXPECT_EQ(partial.parts, PartialParts::kWeights);
  EXPECT_EQ(partial.staleness_max, 9u);
  EXPECT_EQ(partial.plt_budget, 0.5);
  EXPECT_EQ(partial.dense, DenseSharding::kEqual);
  EXPECT_FALSE(partial.survivors_continue);
}

TEST_F(RunFlagsTest, RemovedSelectorNamesReplacement) {
  try {
    spec_of({"--selector", "age-aware"});
    FAIL() << "accepted";
  } catch (const CLI::ValidationError& refused) {
    EXPECT_STREQ(refused.what(),
                 "--selector: selector age-aware was removed: use risk-aware, which weighs age in "
                 "every layer, or load-aware, which never does");
  }
}

TEST_F(RunFlagsTest, FlagsWithoutEffectAreReportedNotRefused) {
  EXPECT_THAT(resolve({"--selector", "sequential", "--staleness-max", "3"}).notes,
              ElementsAre("--selector sequential: without effect, as every checkpoint takes all "
                          "experts; see --experts-per-checkpoint",
                          "--staleness-max 3: without effect, as every checkpoint takes all "
                          "experts; see --experts-per-checkpoint"));
  EXPECT_THAT(resolve({"--selector", "sequential", "--experts-per-checkpoint", "2"}).notes,
              IsEmpty());
}

TEST_F(RunFlagsTest, ReportsRanksWithoutDomain) {
  RunFacts facts = machine_facts();
  facts.domains_csv = "rank,node\n1,a\n3,a\n";
  const Flags flags = {"--ranks", "3", "--domains", "nodes.csv"};
  EXPECT_THAT(
      resolve(flags, facts).notes,
      ElementsAre("--domains nodes.csv names no node of ranks 0, 2: each is a node by itself"));
  EXPECT_THAT(resolve(flags, facts).options.rank.nodes, ElementsAre(kOwnNode, 0, kOwnNode, 0));
  Flags with_joiners = flags;
  with_joiners.insert(with_joiners.end(), {"--join", "2@5"});
  EXPECT_THAT(
      resolve(with_joiners, facts).notes,
      ElementsAre("--domains nodes.csv names no node of ranks 0, 2, 4: each is a node by itself"));
}

TEST_F(RunFlagsTest, EnvironmentVariableCountsAsFlag) {
  ::setenv("CKPTD_SOCKET", "unix:/s", 1);
  ::setenv("CKPTD_RUN", "mine", 1);
  const RunSpec spec = spec_of({});
  clear_environment();
  EXPECT_TRUE(spec.is_given("--socket"));
  EXPECT_EQ(spec.run_name, "mine");
  const auto other = [&] {
    RunSpec resuming = spec;
    resuming.resume = "yours@5";
    return resuming.resolve(machine_facts());
  }();
  EXPECT_FALSE(other.ok()) << "CKPTD_RUN names the run, as --run does";
}

TEST_F(RunFlagsTest, RecordsFlagsAsTyped) {
  const RunSpec spec = spec_of({"--kill", "0@3", "--kill", "0@4", "--json", "--ranks", "04"});
  const std::map<std::string, std::string, std::less<>> given = {
      {"--kill", "0@3"}, {"--json", ""}, {"--ranks", "04"}};
  EXPECT_EQ(spec.given, given);
}

}  // namespace
}  // namespace moetrain::test
