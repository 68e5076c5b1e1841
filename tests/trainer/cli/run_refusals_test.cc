// Every rule on the flags of `moetrain run`: refused values, messages and exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/trainer/cli/command_line.h"
#include "trainer/cli/run_parts.h"

namespace moetrain::test {
namespace {

using testing::StartsWith;

struct Refusal {
  Flags flags;
  std::string says;  // the beginning of the message
  int exit_code = 2;
};

class RunRefusalTest : public testing::Test {
 protected:
  RunRefusalTest() { clear_environment(); }

  static void expect_refused(const Refusal& refusal, const RunFacts& facts) {
    const auto resolved = spec_of(refusal.flags).resolve(facts);
    ASSERT_FALSE(resolved.ok()) << refusal.says;
    EXPECT_THAT(resolved.error().message, StartsWith(refusal.says));
    EXPECT_EQ(ckpt::exit_code_for(resolved.error().code), refusal.exit_code) << refusal.says;
  }
};

// By the table of run_rules.cc.
const Refusal kByTable[] = {
    {{"--ranks", "0"}, "--ranks 0: at least 1 is needed"},
    {{"--steps", "0"}, "--steps 0: nothing to do; at least 1 is needed"},
    {{"--new-data"}, "--new-data: only with --resume; a new run takes any --data"},
    {{"--socket", "unix:/s", "--data-dir", "store"},
     "--data-dir store: only for a ckptd of the run's own, not with --socket unix:/s"},
    {{"--socket", "unix:/s", "--kill-daemon", "3", "--kill-daemon", "4"},
     "--kill-daemon 3: only for a ckptd of the run's own, not with --socket unix:/s"},
    {{"--checkpoint-turns", "20", "--checkpoint-every", "auto"},
     "--checkpoint-turns 20: not with --checkpoint-every auto"},
    {{"--checkpoint-turns", "4", "--checkpoint-every", "5"},
     "--checkpoint-turns 4: must be at least --checkpoint-every (5), which must not be 0"},
    {{"--checkpoint-turns", "4", "--checkpoint-every", "0"},
     "--checkpoint-turns 4: must be at least --checkpoint-every (0), which must not be 0"},
    {{"--socket", "tcp:1.2.3.4"},
     "--socket tcp:1.2.3.4: ckptd serves unix sockets of its own machine alone: name one as "
     "unix:PATH"},
    {{"--checkpoint-every", "100", "--unsaved-max", "50", "--steps", "200"},
     "--unsaved-max 50: fewer steps than --checkpoint-every 100, so that every interval would "
     "exceed it; give at least 100, or checkpoint more often"},
    {{"--on-unsaved", "stop"},
     "--on-unsaved stop: needs --unsaved-max STEPS or TIME, like 100 or 10m"},
    {{"--slots-max", "2", "--slots", "3", "--placement", "eplb"},
     "--slots-max 2: fewer than --slots 3"},
    {{"--replan-every", "5"},
     "--replan-every 5: --placement static never moves an expert; choose another"},
    {{"--replan-every", "5", "--placement", "eplb", "--device", "cuda"},
     "--replan-every 5: whether a move pays is known on the CPU only; with --device cuda only "
     "--replan-if better"},
    {{"--prefetch", "1"},
     "--prefetch 1: only with --expert-state sharded; replicated experts are not exchanged"},
    {{"--expert-state", "sharded", "--prefetch", "3"}, "--prefetch 3: must be 0 to 2 layers"},
    {{"--reshard", "inline"}, "--reshard inline: only with --expert-state sharded"},
    {{"--schedule-trace", "trace.json"},
     "--schedule-trace trace.json: only with --expert-state sharded"},
    {{"--expert-state", "sharded", "--placement", "lazarus"},
     "--placement lazarus: places replicas that hold state, and --expert-state sharded has none"},
    {{"--expert-state", "sharded", "--placement", "flexmoe"},
     "--placement flexmoe: places replicas that hold state"},
    {{"--expert-state", "sharded", "--min-replicas", "2"},
     "--min-replicas 2: only with replicas that hold state; --expert-state sharded has none"},
    {{"--expert-state", "sharded", "--check-replicas", "5"},
     "--check-replicas 5: only with replicas that hold state"},
    {{"--expert-state", "sharded", "--slots-max", "4"},
     "--slots-max 4: only with replicas that hold state"},
    {{"--expert-state", "sharded", "--replan-if", "pays"},
     "--replan-if pays: --expert-state sharded takes every plan, as a new one moves no state"},
    {{"--on-loss", "restart", "--join", "1@5"},
     "--join 1@5: only with --on-loss continue, here it is restart (as asked for)"},
    {{"--on-loss", "restart", "--leave", "1@5"}, "--leave 1@5: only with --on-loss continue"},
    {{"--on-loss", "restart", "--kill-in", "1@plan"},
     "--kill-in 1@plan: only with --on-loss continue"},
    {{"--router-trace", "t.csv", "--router-skew", "1.2"},
     "--router-skew 1.2: not with --router-trace, which says how popular experts are"},
    {{"--router-skew-order", "2"}, "--router-skew-order 2: only with --router-skew"},
    {{"--router-trace-hold", "5"}, "--router-trace-hold 5: only with --router-trace"},
    {{"--loss-grace-ms", "0"}, "--loss-grace-ms 0: must be 1 to 120000"},
    {{"--loss-grace-ms", "120001"}, "--loss-grace-ms 120001: must be 1 to 120000"},
    {{"--collective-timeout-ms", "0"}, "--collective-timeout-ms 0: at least 1"},
    {{"--heartbeat-timeout-ms", "999"},
     "--heartbeat-timeout-ms 999: at least 1000, or 0 for never"},
    {{"--daemon-timeout-ms", "1"}, "--daemon-timeout-ms 1: at least 1000, or 0 for never"},
};

// By the text of one value.
const Refusal kByValue[] = {
    {{"--run", "a/b"}, "--run 'a/b': 1 to 128 of [A-Za-z0-9._-], not beginning with . or -"},
    {{"--run", ".hidden"}, "--run '.hidden': 1 to 128"},
    {{"--run", std::string(129, 'x')}, "--run 'xxx"},
    {{"--run", ""}, "--run '': 1 to 128"},
    {{"--resume", "so on"}, "--resume so on: "},
    {{"--run", "mine", "--resume", "yours@5"},
     "--resume yours@5: the run is mine (--run or CKPTD_RUN), and resumes from its own commits "
     "only"},
    {{"--device", "tpu"}, "--device tpu: must be cpu, cuda or cuda:N"},
    {{"--device", "cuda:x", "--resume", "latest"}, "--device cuda:x: must be cpu, cuda or cuda:N"},
    {{"--preset", "huge"}, "--preset huge: there is none of this name; there are tiny, small"},
    {{"--preset", "huge", "--resume", "latest"}, "--preset huge: there is none of this name"},
    {{"--checkpoint-every", "often"}, "--checkpoint-every often: must be 'auto' or a number of"},
    {{"--checkpoint-every", "-1"}, "--checkpoint-every -1: must be 'auto' or a number of steps"},
    {{"--experts-per-checkpoint", "0"}, "--experts-per-checkpoint 0: must be 'all', 'auto' or"},
    {{"--experts-per-checkpoint", "few"}, "--experts-per-checkpoint few: must be 'all', 'auto'"},
    {{"--experts-per-snapshot", "0"}, "--experts-per-snapshot 0: must be 'all', 'auto' or how"},
    {{"--experts-per-snapshot", "-2"}, "--experts-per-snapshot -2: must be 'all', 'auto' or how"},
    {{"--unsaved-max", "0"}, "--unsaved-max 0: must be a number of steps, at least 1, or a time"},
    {{"--unsaved-max", "10 apples"}, "--unsaved-max 10 apples: must be a number of steps"},
    {{"--unsaved-max", "10us"}, "--unsaved-max 10us: must be a number of steps"},
    {{"--kill", "x"}, "--kill x: must be RANK@STEP, like 2@33"},
    {{"--kill", "1"}, "--kill 1: must be RANK@STEP"},
    {{"--kill", "0@0"}, "--kill 0@0: must be RANK@STEP"},
    {{"--kill", "4294967296@1"}, "--kill 4294967296@1: must be RANK@STEP"},
    {{"--leave", "1"}, "--leave 1: must be RANK@STEP, like 2@50"},
    {{"--leave", "1@2@3"}, "--leave 1@2@3: must be RANK@STEP"},
    {{"--join", "0@5"}, "--join 0@5: must be COUNT@STEP, like 2@50, with a COUNT of 1 to 1024"},
    {{"--join", "1025@5"}, "--join 1025@5: must be COUNT@STEP"},
    {{"--kill-in", "1@lunch"},
     "--kill-in 1@lunch: must be RANK@PHASE, where PHASE is one of join, connect, agree, plan, "
     "move, commit, restore, settle"},
};

// By changes that could never happen.
const Refusal kByChanges[] = {
    {{"--ranks", "2", "--kill", "2@3"}, "--kill 2@3: there are only ranks 0 to 1"},
    {{"--ranks", "2", "--kill", "1@9", "--steps", "8"}, "--kill 1@9: the run does steps 1 to 8"},
    {{"--kill-daemon", "9", "--steps", "8"}, "--kill-daemon 9: the run does steps 1 to 8"},
    {{"--kill-daemon", "0"}, "--kill-daemon 0: the run does steps 1 to 100"},
    {{"--join", "1@9", "--steps", "8"}, "--join 1@9: the run does steps 1 to 8"},
    {{"--join", "1@8", "--steps", "8"}, "--join 1@8: the run ends with this step: nothing follows"},
    {{"--leave", "0@8", "--steps", "8"},
     "--leave 0@8: the run ends with this step: nothing follows"},
    {{"--ranks", "2", "--leave", "9@5"}, "--leave 9@5: there are only ranks 0 to 1"},
    {{"--ranks", "2", "--leave", "2@3", "--join", "1@3"},
     "--leave 2@3: there are only ranks 0 to 1 by then"},
    {{"--ranks", "2", "--kill-in", "4@move", "--join", "2@3"},
     "--kill-in 4@move: there are only ranks 0 to 3"},
    {{"--ranks", "2", "--kill", "1@5", "--kill", "1@2"},
     "--kill 1@5: rank 1 is gone by then (--kill 1@2); --on-loss restart brings it back"},
    {{"--ranks", "2", "--leave", "1@2", "--kill", "1@2"},
     "--leave 1@2: rank 1 is gone by then (--kill 1@2)"},
};

// By the model, the placement, the data, the files or the GPUs.
const Refusal kByModel[] = {
    {{"--ranks", "9"}, "--ranks 9: more ranks than the 8 sequences of a micro-batch"},
    {{"--batch", "0"}, "--batch 0 --micro-batches 1: not below 1"},
    {{"--layers", "100000"}, "model config: layers is 100000"},
    {{"--lr", "-1"}, "--lr -1: must be from 0"},
    {{"--precision", "bf16"},
     "--precision bf16: only with --device cuda; --device cpu computes in fp32"},
    {{"--experts", "4", "--ranks", "5"}, "placement: 5 ranks for 4 experts"},
    {{"--experts", "4", "--experts-per-checkpoint", "5"},
     "--experts-per-checkpoint 5: 5 experts of each layer"},
    {{"--plt-budget", "1.5"}, "--plt-budget 1.5: must be from 0 to 1"},
    {{"--experts-per-snapshot", "auto"},
     "--experts-per-snapshot auto: with "
     "--experts-per-checkpoint all there are no others"},
    {{"--experts-per-checkpoint", "2", "--experts-per-snapshot", "1"},
     "--experts-per-snapshot 1: must be at least --experts-per-checkpoint (2)"},
    {{"--experts", "4", "--ranks", "2", "--placement", "eplb", "--slots-max", "1"},
     "2 ranks with --slots-max 1 can hold 2 of the 4 experts of a layer"},
    {{"--experts", "8", "--ranks", "2", "--expert-state", "sharded", "--slots", "3"},
     "--slots 3: "},
    {{"--experts", "1024", "--layers", "2", "--ranks", "2", "--expert-state", "sharded", "--join",
      "800@5"},
     "--ranks 2 and 800 that --join: a snapshot of 2048 sharded experts on 802 ranks has "},
    {{"--seq", "60000"}, "data book.txt: 1048576 bytes are too few for sequences of 60000 tokens"},
    {{"--device", "cuda:2"}, "--device cuda:2: this machine has GPUs 0 to 1", 1},
};

TEST_F(RunRefusalTest, RefusalNamesFlagValueAndReason) {
  for (const Refusal& refusal : kByTable) expect_refused(refusal, machine_facts());
  for (const Refusal& refusal : kByValue) expect_refused(refusal, machine_facts());
  for (const Refusal& refusal : kByChanges) expect_refused(refusal, machine_facts());
  for (const Refusal& refusal : kByModel) expect_refused(refusal, machine_facts());
}

// Before files are read and GPUs are asked for.
TEST_F(RunRefusalTest, RefusesFlagsBeforeReadingFacts) {
  for (const Refusal& refusal : kByTable) expect_refused(refusal, {});
  for (const Refusal& refusal : kByValue) expect_refused(refusal, {});
  for (const Refusal& refusal : kByChanges) expect_refused(refusal, {});
}

TEST_F(RunRefusalTest, EveryTableRuleHasTestAndFlag) {
  RunSpec spec;
  CLI::App command;
  add_run_flags(command, spec);
  std::multiset<std::string> tested = {
      "--selector", "--partial-parts", "--staleness-max", "--keep", "--io", "--daemon-timeout-ms"};
  for (const Refusal& refusal : kByTable) {
    tested.insert(refusal.says.substr(0, refusal.says.find_first_of(" :")));
  }
  for (const std::string_view known : flags_with_rules()) {
    const std::string flag(known);
    EXPECT_NE(command.get_option_no_throw(flag), nullptr) << flag;
    const auto test = tested.find(flag);
    ASSERT_NE(test, tested.end()) << flag << ": as many tests as rules";
    tested.erase(test);
  }
}

TEST_F(RunRefusalTest, MachineErrorsNameTheirFlag) {
  RunFacts facts = machine_facts();
  facts.outputs =
      ckpt::make_error(ckpt::ErrorCode::kIo, "--report /nowhere/r.json: cannot create it");
  expect_refused({{"--report", "/nowhere/r.json"}, "--report /nowhere/r.json: cannot create it", 1},
                 facts);
  facts = machine_facts();
  facts.gpus = GpuFacts{.reason = "this program was built without CUDA"};
  expect_refused({{"--device", "cuda"}, "--device cuda: this program was built without CUDA", 1},
                 facts);
  EXPECT_TRUE(spec_of({"--device", "cpu"}).resolve(facts).ok());
  facts.domains_csv = "rank,node\n0,a\n0,b\n";
  expect_refused({{"--domains", "nodes.csv"}, "nodes.csv line 3: rank 0 has a line already"},
                 facts);
  facts.domains_csv = "rank,node\n";
  expect_refused({{"--domains", "nodes.csv"}, "--domains nodes.csv: has no line rank,node"}, facts);
}

// A trace of 4 experts in each of 2 layers, and the same with another number of tokens.
RunFacts with_trace(RunFacts facts, int tokens = 1) {
  const auto text = fmt::format("iteration,layer,e0,e1,e2,e3\n1,0,1,2,3,{}\n1,1,1,2,3,4\n", tokens);
  facts.router_trace = std::make_shared<const RouterTrace>(*RouterTrace::parse(text, "t.csv"));
  return facts;
}

TEST_F(RunRefusalTest, ATraceMustFitTheModel) {
  const Flags trace = {"--router-trace", "t.csv"};
  const auto and_trace = [&](Flags flags) {
    flags.insert(flags.end(), trace.begin(), trace.end());
    return flags;
  };
  const RunFacts facts = with_trace(machine_facts());
  expect_refused({trace, "--router-trace t.csv: has 4 experts in a layer, the model has 8"}, facts);
  expect_refused({and_trace({"--experts", "4", "--layers", "3"}),
                  "--router-trace t.csv: has 2 layers, the model has 3"},
                 facts);
  expect_refused({and_trace({"--experts", "4", "--router-trace-hold", "0"}),
                  "--router-trace-hold 0: at least 1"},
                 facts);
  const auto accepted = spec_of(and_trace({"--experts", "4", "--layers", "1"})).resolve(facts);
  ASSERT_TRUE(accepted.ok()) << accepted.error().message;
  const RankOptions& rank = accepted->options.rank;
  EXPECT_EQ(rank.router_trace, "t.csv");
  EXPECT_EQ(rank.config.model.router_trace_hold, 1u) << "the default";
  EXPECT_EQ(rank.config.model.router_trace_crc32c, facts.router_trace->crc32c());
}

TEST_F(RunRefusalTest, AResumeNeedsTheTraceOfTheRun) {
  RunFacts facts = with_trace(resumed_facts());
  const Flags resume = {"--resume", "latest", "--router-trace", "t.csv"};
  expect_refused({resume, "--router-trace t.csv: run moetrain step 40 was trained without a trace"},
                 facts);
  ModelConfig& model = facts.commit->config.model;
  model.experts = 4;
  model.router_trace_crc32c = facts.router_trace->crc32c();
  model.router_trace_hold = 20;
  const auto accepted = spec_of(resume).resolve(facts);
  ASSERT_TRUE(accepted.ok()) << accepted.error().message;
  EXPECT_EQ(accepted->options.rank.config.model.router_trace_hold, 20u) << "the run's own";
  Flags longer = resume;
  longer.insert(longer.end(), {"--router-trace-hold", "21"});
  expect_refused({longer,
                  "--router-trace-hold 21: run moetrain step 40 was trained with "
                  "--router-trace-hold 20; leave the flag out"},
                 facts);
  expect_refused({resume, "--router-trace t.csv: has CRC32C "}, with_trace(facts, 5));
  facts.router_trace = nullptr;
  expect_refused(
      {{"--resume", "latest"}, "run moetrain step 40 was trained by a routing trace with CRC32C "},
      facts);
}

TEST_F(RunRefusalTest, AcceptsValidUnsavedLimits) {
  const Flags accepted[] = {
      {"--checkpoint-every", "100", "--unsaved-max", "100", "--steps", "200"},
      {"--checkpoint-every", "100", "--unsaved-max", "50", "--steps", "50"},
      {"--checkpoint-every", "100", "--unsaved-max", "10m", "--steps", "200"},
      {"--checkpoint-every", "0", "--unsaved-max", "50", "--steps", "200"},
      {"--checkpoint-every", "auto", "--unsaved-max", "5", "--steps", "200"},
  };
  for (const Flags& flags : accepted) {
    EXPECT_TRUE(spec_of(flags).resolve(machine_facts()).ok()) << testing::PrintToString(flags);
  }
}

TEST_F(RunRefusalTest, ANetworkAddressFromTheEnvironmentIsRefused) {
  ::setenv("CKPTD_SOCKET", "tcp:1.2.3.4", 1);
  RunFacts facts = machine_facts();
  facts.socket_variable = "tcp:1.2.3.4";
  expect_refused({{}, "--socket tcp:1.2.3.4: ckptd serves unix sockets"}, facts);
  const auto resolved = spec_of({}).resolve(facts);
  EXPECT_THAT(resolved.error().message, testing::HasSubstr("(CKPTD_SOCKET in the environment)"));
  clear_environment();
}

TEST_F(RunRefusalTest, RefusalNamesSocketFromEnvironment) {
  ::setenv("CKPTD_SOCKET", "unix:/old", 1);
  RunFacts facts = machine_facts();
  facts.socket_variable = "unix:/old";
  expect_refused({{"--data-dir", "d"},
                  "--data-dir d: only for a ckptd of the run's own, not with "
                  "CKPTD_SOCKET=unix:/old in the environment: unset it"},
                 facts);
  expect_refused({{"--data-dir", "d", "--socket", "unix:/new"},
                  "--data-dir d: only for a ckptd of the run's own, not with --socket unix:/new"},
                 facts);
  clear_environment();
}

TEST_F(RunRefusalTest, ResumeNamesFlagThatContradictsCommit) {
  const TrainConfig saved = saved_run().config;
  const auto one_more = [](auto number) { return fmt::format("{}", number + 1); };
  const std::pair<std::string, std::string> flags[] = {
      {"--layers", one_more(saved.model.layers)},
      {"--hidden", one_more(saved.model.hidden)},
      {"--heads", one_more(saved.model.heads)},
      {"--kv-heads", one_more(saved.model.kv_heads)},
      {"--head-dim", one_more(saved.model.head_dim)},
      {"--intermediate", one_more(saved.model.intermediate)},
      {"--experts", one_more(saved.model.experts)},
      {"--top-k", one_more(saved.model.top_k)},
      {"--seq", one_more(saved.model.seq_len)},
      {"--micro-batches", one_more(saved.micro_batches)},
      {"--batch", one_more(saved.batch)},
      {"--lr", one_more(saved.schedule.learning_rate)},
      {"--warmup", one_more(saved.schedule.warmup_steps)},
      {"--lr-steps", one_more(saved.schedule.total_steps)},
      {"--weight-decay", one_more(saved.adamw.weight_decay)},
      {"--clip", one_more(saved.adamw.clip_norm)},
      {"--aux", one_more(saved.model.aux_coef)},
      {"--idle-experts", "skip"},
      {"--precision", "bf16"},
  };
  for (const auto& [flag, value] : flags) {
    expect_refused({{"--resume", "latest", flag, value},
                    flag + " " + value + ": run moetrain step 40 was trained with " + flag + " "},
                   resumed_facts());
  }
  expect_refused({{"--resume", "latest", "--layers", "9"},
                  fmt::format("--layers 9: run moetrain step 40 was trained with --layers {}; ",
                              saved.model.layers)},
                 resumed_facts());
}

TEST_F(RunRefusalTest, AResumeMustNotContradictTheCommit) {
  const Refusal refusals[] = {
      {{"--resume", "latest", "--seed", "8"},
       "--seed 8: run moetrain step 40 was trained with --seed 1; leave the flag out"},
      {{"--resume", "latest", "--router-skew", "1.5"},
       "--router-skew 1.5: run moetrain step 40 was trained without --router-skew; leave"},
      {{"--resume", "latest", "--preset", "small"},
       "--preset small: run moetrain step 40 was trained with --"},
      {{"--resume", "latest", "--steps", "39"}, "--steps 39: run moetrain is already at step 40"},
      {{"--resume", "latest", "--kill", "0@40"}, "--kill 0@40: the run does steps 41 to 100"},
      {{"--resume", "latest", "--ranks", "9"}, "--ranks 9: more ranks than the 8 sequences"},
      {{"--resume", "latest", "--experts-per-checkpoint", "99"},
       "--experts-per-checkpoint 99: 99 experts"},
  };
  for (const Refusal& refusal : refusals) expect_refused(refusal, resumed_facts());
  RunFacts other_data = resumed_facts();
  other_data.commit_state->data_crc32c = 8;
  expect_refused({{"--resume", "latest", "--data", "d"},
                  "run moetrain step 40 was trained on other data: 1.0 MiB with CRC32C 00000008, "
                  "--data now has 1.0 MiB with 00000007; give the same --data, or --new-data"},
                 other_data);
  expect_refused({{"--resume", "latest"},
                  "run moetrain step 40 was trained on other data: 1.0 MiB with CRC32C 00000008. "
                  "Without --data a run trains on the project's own sources, which change with the "
                  "checkout: they now have 1.0 MiB with 00000007. Resume with --data FILE"},
                 other_data);
  EXPECT_TRUE(spec_of({"--resume", "latest", "--new-data"}).resolve(other_data).ok());
  RunFacts bf16 = resumed_facts();
  bf16.commit->config.precision = Precision::kBf16;
  expect_refused({{"--resume", "latest"}, "--precision bf16: only with --device cuda"}, bf16);
}

}  // namespace
}  // namespace moetrain::test
