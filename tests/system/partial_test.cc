// Runs that save only some experts and lose ranks: the losses equal the reported losses.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/system/told_run.h"
#include "tests/system/training.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class PartialTest : public TrainingTest {
 protected:
  // Trains a run that loses ranks, and recomputes its metrics line by line.
  json train_and_recompute(const std::vector<std::string>& more) {
    const std::string metrics = folder_ / "metrics.jsonl";
    std::vector<std::string> all = {"--ranks", "2", "--metrics", metrics, "--layers", "2"};
    all.insert(all.end(), more.begin(), more.end());
    const json report = train("report.json", all);
    ToldRun told(2, 4);
    double last = 0;
    for (const json& line : read_lines(metrics)) {
      told.read(line);
      if (!line.contains("plt")) continue;
      last = told.plt();
      EXPECT_NEAR(line.at("plt").get<double>(), last, 1e-12) << line.dump();
    }
    EXPECT_NEAR(report.at("plt").get<double>(), last, 1e-12);
    if (last > 0) {
      EXPECT_EQ(report.at("lost_tokens"), json(told.lost()));
    }
    rolled_back_ = told.rolled_back();
    from_seed_ = told.from_seed();
    resumes_ = told.resumes();
    smallest_snapshot_ = told.smallest_snapshot();
    return report;
  }

  // The commit of the highest step: the log has the order in which commits became durable, which is
  // another one for checkpoints that overlap.
  static json newest_commit(const Ckptd& daemon) {
    const json log = daemon.ctl({"log", "tiny"}).json();
    return *std::ranges::max_element(
        log, {}, [](const json& commit) { return commit.at("step").get<uint64_t>(); });
  }

  // Checks that ckptd's history and the report agree on the tokens that each expert has lost.
  static void expect_history_has_lost(const Ckptd& daemon, const json& report) {
    const json experts = daemon.ctl({"experts", "tiny", "--by", "lost-so-far"}).json();
    json lost = json::array();
    uint64_t sum = 0;
    for (const json& layer : experts.at("layers")) {
      for (const json& expert : layer.at("experts")) {
        lost.push_back(expert.at("lost_so_far"));
        sum += expert.at("lost_so_far").get<uint64_t>();
      }
    }
    EXPECT_EQ(lost, report.at("lost_tokens"));
    EXPECT_GT(sum, 0u);
    EXPECT_EQ(newest_commit(daemon).at("lost_so_far"), sum);
    EXPECT_EQ(daemon.ctl({"rebuild"}).code(), 0);
    EXPECT_EQ(daemon.ctl({"experts", "tiny"}).json(), experts);
  }

  size_t resumes_ = 0;
  size_t rolled_back_ = 0;
  size_t from_seed_ = 0;
  size_t smallest_snapshot_ = 0;
};

// Survivors continue; only the experts of the lost rank roll back.
TEST_F(PartialTest, RollbackReportsExactLostTokens) {
  const std::string store = folder_ / "store";
  const json report = train_and_recompute(
      {"--steps", "22", "--checkpoint-every", "2", "--experts-per-checkpoint", "1", "--plt-budget",
       "1", "--on-loss", "continue", "--kill", "1@12", "--data-dir", store});
  EXPECT_EQ(resumes_, 0u);
  EXPECT_EQ(rolled_back_, 4u) << "two of four experts, in two layers";
  EXPECT_EQ(from_seed_, 0u);
  EXPECT_GT(report.at("plt"), 0);
  EXPECT_EQ(report.at("plt_rollback"), report.at("plt"));
  EXPECT_GT(report.at("failures").at(0).at("lost_tokens"), 0);
  EXPECT_THAT(last_error_output_, HasSubstr("4 experts were lost and came back from ckptd"));
  const Ckptd daemon(store);
  const json metrics = newest_commit(daemon).at("metrics");
  EXPECT_DOUBLE_EQ(metrics.at("plt_rollback"), report.at("plt_rollback").get<double>());
  expect_history_has_lost(daemon, report);
}

TEST_F(PartialTest, UnsavedExpertsRestartFromSeedAndAreReported) {
  const json report = train_and_recompute(
      {"--steps", "9", "--checkpoint-every", "0", "--on-loss", "continue", "--kill", "1@6"});
  EXPECT_EQ(rolled_back_, 4u);
  EXPECT_EQ(from_seed_, 4u);
  EXPECT_EQ(report.at("failures").at(0).at("experts_from_seed"), 4);
  EXPECT_THAT(last_error_output_, HasSubstr("4 experts were lost with all they had learned: no "
                                            "checkpoint has them, they begin again from the seed"));
  EXPECT_THAT(last_error_output_, testing::Not(HasSubstr("came back from ckptd")));
  EXPECT_THAT(last_error_output_, testing::Not(HasSubstr("from now on"))) << "k was always all";
}

TEST_F(PartialTest, RestartReportsExactLostTokens) {
  const std::string store = folder_ / "store";
  const json report = train_and_recompute(
      {"--steps", "22", "--checkpoint-every", "2", "--experts-per-checkpoint", "1", "--plt-budget",
       "1", "--on-loss", "restart", "--kill", "1@12", "--kill", "0@17", "--data-dir", store});
  EXPECT_EQ(resumes_, 2u);
  EXPECT_EQ(smallest_snapshot_, 2u) << "one expert of each of two layers";
  EXPECT_GT(report.at("plt"), 0);
  uint64_t stale = 0;
  for (const json& failure : report.at("failures"))
    stale += failure.at("stale_units").get<uint64_t>();
  EXPECT_GT(stale, 0u);
  const Ckptd daemon(store);
  const json shown = daemon.ctl({"show", "tiny@latest"}).json();
  EXPECT_TRUE(shown.at("complete"));
  for (const json& unit : shown.at("units")) {
    EXPECT_EQ(unit.at("version_step"), 22) << "the last checkpoint is full: " << unit.at("unit");
  }
  EXPECT_DOUBLE_EQ(newest_commit(daemon).at("metrics").at("plt"), report.at("plt").get<double>());
  expect_history_has_lost(daemon, report);
  EXPECT_EQ(daemon.ctl({"verify"}).code(), 0);
}

// The interval and K are chosen again after enough checkpoints since the last failure. On a busy
// machine that takes more than ten steps.
TEST_F(PartialTest, AutomaticSettingsReportExactLostTokensOnRestart) {
  const json report = train_and_recompute(
      {"--steps", "120", "--checkpoint-every", "auto", "--experts-per-checkpoint", "auto",
       "--experts-per-snapshot", "auto", "--plt-budget", "1", "--on-loss", "restart", "--kill",
       "1@35", "--kill", "0@50"});
  EXPECT_EQ(resumes_, 2u);
  EXPECT_GE(report.at("experts_per_checkpoint"), 1);
  EXPECT_LE(report.at("experts_per_checkpoint"), 4);
  EXPECT_THAT(report.at("reason").get<std::string>(), HasSubstr("2 failures in"));
}

// The choice depends on measured times and is in the metrics; the losses follow from the choice.
TEST_F(PartialTest, AutomaticSettingsReportExactLostTokensOnContinue) {
  const json report =
      train_and_recompute({"--steps", "120", "--checkpoint-every", "auto",
                           "--experts-per-checkpoint", "auto", "--experts-per-snapshot", "auto",
                           "--plt-budget", "1", "--on-loss", "continue", "--kill", "1@24"});
  EXPECT_EQ(resumes_, 0u);
  EXPECT_EQ(rolled_back_, 4u) << "two of four experts, in two layers";
  EXPECT_EQ(report.at("plt_rollback"), report.at("plt"));
  const json& bytes = report.at("failures").at(0).at("bytes");
  EXPECT_GT(bytes.at("memory").get<uint64_t>() + bytes.at("disk").get<uint64_t>(), 0u);
  EXPECT_THAT(report.at("reason").get<std::string>(), HasSubstr("1 failure in"));
}

TEST_F(PartialTest, PartialCheckpointCanOmitMomentsOnly) {
  const json report =
      train_and_recompute({"--steps", "14", "--checkpoint-every", "2", "--experts-per-checkpoint",
                           "1", "--selector", "sequential", "--partial-parts", "optimizer",
                           "--plt-budget", "1", "--on-loss", "restart", "--kill", "1@11"});
  EXPECT_EQ(resumes_, 1u);
  EXPECT_GT(report.at("plt"), 0);
}

TEST_F(PartialTest, ExceededBudgetSwitchesToFullCheckpoints) {
  const json report = train_and_recompute(
      {"--steps", "20", "--checkpoint-every", "2", "--experts-per-checkpoint", "1", "--plt-budget",
       "0.001", "--on-loss", "restart", "--kill", "1@9", "--kill", "1@17"});
  EXPECT_EQ(resumes_, 2u);
  EXPECT_GT(report.at("plt"), 0);
  EXPECT_THAT(last_error_output_, HasSubstr("4 experts of each layer from now on"));
  EXPECT_EQ(report.at("failures").back().at("stale_units"), 0);
}

// The ranks die, ckptd survives.
TEST_F(PartialTest, RestoresExpertsFromCkptdMemory) {
  const std::vector<std::string> same = {"--steps",
                                         "16",
                                         "--checkpoint-every",
                                         "2",
                                         "--experts-per-checkpoint",
                                         "1",
                                         "--selector",
                                         "sequential",
                                         "--plt-budget",
                                         "1",
                                         "--on-loss",
                                         "restart",
                                         "--kill",
                                         "1@13"};
  const json disk = train_and_recompute(same);
  auto with = same;
  with.insert(with.end(), {"--experts-per-snapshot", "2"});
  const json memory = train_and_recompute(with);
  EXPECT_EQ(resumes_, 1u);
  EXPECT_GT(memory.at("plt"), 0);
  EXPECT_LT(memory.at("plt"), disk.at("plt").get<double>());
  EXPECT_GT(memory.at("failures").at(0).at("bytes").at("memory"), 0);
}

// ckptd dies after step 10 is durable: experts that were only in its memory are back at step 5.
TEST_F(PartialTest, ResumedVersionsReflectLostCkptdMemory) {
  const json report = train_and_recompute(
      {"--steps", "18", "--checkpoint-every", "5", "--checkpoint-wait", "durable",
       "--experts-per-checkpoint", "1", "--experts-per-snapshot", "2", "--plt-budget", "1",
       "--on-loss", "restart", "--kill-daemon", "11", "--kill", "1@14"});
  EXPECT_EQ(resumes_, 1u);
  EXPECT_EQ(report.at("failures").at(0).at("bytes").at("memory"), 0);
  std::vector<uint64_t> versions;
  for (const json& line : read_lines(folder_ / "metrics.jsonl")) {
    if (!line.contains("resumed_at")) continue;
    EXPECT_EQ(line.at("resumed_at"), 10);
    versions = line.at("resumed_versions").get<std::vector<uint64_t>>();
  }
  ASSERT_EQ(versions.size(), 8u);
  EXPECT_EQ(std::ranges::count(versions, 10u), 2) << "one of each layer was written";
  EXPECT_EQ(std::ranges::count(versions, 5u), 6);
}

TEST_F(PartialTest, AllExpertsInMemorySurviveRankDeath) {
  const std::vector<std::string> same = {"--ranks", "2", "--steps", "14", "--checkpoint-every",
                                         "2"};
  const auto expected = bits(train("quiet.json", same));
  auto with = same;
  with.insert(with.end(), {"--experts-per-checkpoint", "1", "--experts-per-snapshot", "all",
                           "--on-loss", "restart", "--kill", "0@9", "--kill", "1@9"});
  const json report = train("report.json", with);
  EXPECT_EQ(report.at("plt"), 0);
  EXPECT_EQ(bits(report), expected) << "as if nothing had happened";
}

// Every checkpoint has all experts, and yet a rollback loses the updates since the last one.
TEST_F(PartialTest, RollbackBeyondBudgetShortensIntervalTemporarily) {
  const json report =
      train_and_recompute({"--steps", "40", "--checkpoint-every", "8", "--plt-budget", "0.1",
                           "--on-loss", "continue", "--kill", "1@13"});
  EXPECT_EQ(rolled_back_, 4u);
  EXPECT_THAT(last_error_output_, HasSubstr("--plt-budget 0.1 is overspent"));
  EXPECT_THAT(last_error_output_, HasSubstr("one every 4 steps from now on"));
  EXPECT_THAT(last_error_output_,
              HasSubstr("--plt-budget 0.1 is kept again: a checkpoint every 8 steps"));
  std::set<uint64_t> taken;
  double plt = 0;
  uint64_t kept_again = 0;  // the first step that is within the budget again
  for (const json& line : read_lines(folder_ / "metrics.jsonl")) {
    if (line.contains("snapshot")) taken.insert(line.at("snapshot").get<uint64_t>());
    if (!line.contains("plt")) continue;
    if (plt > 0.1 && line.at("plt") <= 0.1) kept_again = line.at("step");
    plt = line.at("plt");
  }
  ASSERT_GT(kept_again, 16u);
  ASSERT_LT(kept_again, 28u);
  std::set<uint64_t> wanted = {8, 32, 40};
  for (uint64_t step = 12; step < 32; ++step) {
    const uint64_t every = step <= kept_again ? 4 : 8;
    if (step % every == 0) wanted.insert(step);
  }
  EXPECT_EQ(taken, wanted);
  EXPECT_EQ(report.at("checkpoint_every"), 8);
}

// The unchanged bytes are references to the version before, which is on the disk.
TEST_F(PartialTest, SkippedIdleExpertsStoreNoBytes) {
  const std::string store = folder_ / "store";
  const std::string metrics = folder_ / "metrics.jsonl";
  train("report.json", {"--ranks",
                        "2",
                        "--steps",
                        "6",
                        "--layers",
                        "1",
                        "--experts",
                        "16",
                        "--top-k",
                        "1",
                        "--hidden",
                        "32",
                        "--intermediate",
                        "512",
                        "--router-skew",
                        "6",
                        "--idle-experts",
                        "skip",
                        "--checkpoint-every",
                        "1",
                        "--checkpoint-wait",
                        "durable",
                        "--metrics",
                        metrics,
                        "--data-dir",
                        store});
  std::vector<int64_t> of_last_step;
  for (const json& line : read_lines(metrics)) {
    if (line.value("step", 0) == 6) of_last_step = line.at("routed").get<std::vector<int64_t>>();
  }
  ASSERT_EQ(of_last_step.size(), 16u);
  const auto idle = std::ranges::count(of_last_step, 0);
  ASSERT_TRUE(idle > 0 && idle < 16);
  const Ckptd daemon(store);
  for (size_t expert = 0; expert < of_last_step.size(); ++expert) {
    for (const char* part : {"weights", "optimizer"}) {
      const std::string unit = fmt::format("layers.0.experts.{}.{}", expert, part);
      const json version = daemon.ctl({"unit", "tiny", unit}).json().at("versions").at(0);
      ASSERT_EQ(version.at("step"), 6) << unit;
      const bool is_idle = of_last_step[expert] == 0;
      EXPECT_EQ(version.at("stored_bytes") == 0, is_idle) << unit << version.dump();
      EXPECT_EQ(version.at("shared_bytes") == version.at("bytes"), is_idle) << unit;
    }
  }
  EXPECT_EQ(daemon.ctl({"verify"}).code(), 0);
}

TEST_F(PartialTest, RefusesResumeWithOtherExpertCount) {
  const std::string store = folder_ / "store";
  train("first.json", {"--ranks", "1", "--steps", "2", "--data-dir", store});
  std::vector<std::string> more = arguments(
      "none.json", {"--ranks", "1", "--steps", "4", "--resume", "latest", "--data-dir", store});
  *(std::find(more.begin(), more.end(), "--experts") + 1) = "8";
  const Ended other = run("moetrain", more);
  EXPECT_EQ(other.code(), 2);
  EXPECT_THAT(other.err, HasSubstr("run tiny step 2 was trained with"));
  const Ckptd daemon(store);
  EXPECT_EQ(daemon.ctl({"show", "tiny@latest"}).json().at("step"), 2) << "nothing changed";
}

TEST_F(PartialTest, RefusesInvalidPartialFlagsBeforeStart) {
  const auto refusal = [&](const std::vector<std::string>& more) {
    const Ended ended = run("moetrain", arguments("none.json", more));
    EXPECT_EQ(ended.code(), 2) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(refusal({"--experts-per-checkpoint", "0"}), HasSubstr("--experts-per-checkpoint 0"));
  EXPECT_THAT(refusal({"--experts-per-checkpoint", "5"}), HasSubstr("there are 4"));
  EXPECT_THAT(refusal({"--experts-per-checkpoint", "1", "--staleness-max", "3"}),
              HasSubstr("4 experts, 1 at a time, take 4"));
  EXPECT_THAT(refusal({"--experts-per-checkpoint", "2", "--experts-per-snapshot", "1"}),
              HasSubstr("--experts-per-snapshot 1"));
  EXPECT_THAT(refusal({"--experts-per-snapshot", "many"}),
              HasSubstr("--experts-per-snapshot many"));
  EXPECT_THAT(refusal({"--experts-per-snapshot", "auto"}),
              HasSubstr("--experts-per-snapshot auto"));
  EXPECT_THAT(refusal({"--checkpoint-turns", "4"}), HasSubstr("--checkpoint-every (10)"));
  EXPECT_THAT(refusal({"--checkpoint-every", "0", "--checkpoint-turns", "4"}),
              HasSubstr("must not be 0"));
  EXPECT_THAT(refusal({"--checkpoint-every", "auto", "--checkpoint-turns", "4"}),
              HasSubstr("not with --checkpoint-every auto"));
  EXPECT_THAT(refusal({"--plt-budget", "2"}), HasSubstr("--plt-budget 2"));
  EXPECT_THAT(refusal({"--selector", "lucky"}), HasSubstr("lucky"));
}

}  // namespace
}  // namespace systemtest
