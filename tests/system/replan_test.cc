// Experts migrate with the load while the run continues: no loss changes a bit, even if processes
// die meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/system/training.h"

namespace systemtest {
namespace {

using nlohmann::json;

class ReplanTest : public TrainingTest {
 protected:
  // Routing follows Zipf's law; the first placement assumes equal loads.
  static const Flags kModel;
  const Flags twice_ = {"--placement", "frontier", "--slots", "5", "--min-replicas", "2"};
  const Flags if_better_ = {"--replan-every", "4", "--replan-if", "better"};

  json train_with(const std::string& report, const std::vector<Flags>& more,
                  const std::string& steps = "14") {
    Flags all = kModel;
    all.insert(all.end(), {"--ranks", "4", "--steps", steps});
    for (const Flags& flags : more) all.insert(all.end(), flags.begin(), flags.end());
    return train(report, all);
  }
  static size_t moves(const json& report) {
    return static_cast<size_t>(std::ranges::count_if(
        report.at("replans"), [](const json& replan) { return replan.at("moved") == true; }));
  }
};

const Flags ReplanTest::kModel = {"--experts", "8", "--batch", "8", "--router-skew", "1.5"};

TEST_F(ReplanTest, ExpertsFollowLoadAndChangeNoBit) {
  const std::string metrics = folder_ / "metrics";
  const json report = train_with(
      "moved.json", {twice_, if_better_, {"--on-loss", "continue", "--metrics", metrics}});
  expect_undisturbed(report, kModel);
  ASSERT_EQ(report.at("replans").size(), 3u) << "after steps 4, 8 and 12";
  const json& first = report["replans"][0];
  EXPECT_EQ(first.at("step"), 4);
  EXPECT_EQ(first.at("moved"), true) << "the first placement took all experts for alike";
  EXPECT_LT(first.at("max_over_mean").at("after"), first.at("max_over_mean").at("before"));
  EXPECT_GT(first.at("bytes"), 0);
  EXPECT_NE(first.at("ranks").at("after"), first.at("ranks").at("before"));
  EXPECT_THAT(last_error_output_, testing::HasSubstr("step 4: "));
  size_t lines = 0;
  for (const json& line : read_lines(metrics)) lines += line.contains("replan") ? 1 : 0;
  EXPECT_EQ(lines, 3u);
}

TEST_F(ReplanTest, MovesIfGainExceedsCost) {
  const json report =
      train_with("pays.json", {twice_, {"--on-loss", "continue", "--replan-every", "4"}});
  ASSERT_FALSE(report.at("replans").empty());
  for (const json& replan : report["replans"]) {
    EXPECT_EQ(replan.at("moved"), replan.at("gain_ms") > replan.at("cost_ms")) << replan.dump();
  }
  const json& first = report["replans"][0];
  EXPECT_NE(first.at("gain_ms"), 0) << "it was measured";
  EXPECT_GT(first.at("cost_ms"), 0);
  expect_undisturbed(report, kModel);
}

TEST_F(ReplanTest, KillInAnyMovePhaseChangesNoBit) {
  for (const std::string phase : {"plan", "move", "commit", "restore", "settle"}) {
    SCOPED_TRACE(phase);
    const json report =
        train_with("phase.json",
                   {twice_, if_better_, {"--on-loss", "continue", "--kill-in", "3@" + phase}}, "6");
    // Membership changes only after the move: the rank died while experts moved.
    ASSERT_EQ(report.at("failures").size(), 1u) << last_error_output_;
    const json& failure = report["failures"][0];
    EXPECT_EQ(failure.at("group"), 3);
    EXPECT_EQ(failure.at("stale_units"), 0) << "every expert had another holder";
    EXPECT_EQ(report.at("plt"), 0);
    expect_undisturbed(report, kModel);
  }
}

// The resume begins with the first placement again, and moves experts again.
TEST_F(ReplanTest, RestartedRunMovesExpertsAgain) {
  const json report = train_with("restart.json", {twice_,
                                                  if_better_,
                                                  {"--on-loss", "restart", "--checkpoint-every",
                                                   "3", "--kill", "1@8", "--check-replicas", "1"}});
  ASSERT_EQ(report.at("failures").size(), 1u) << last_error_output_;
  EXPECT_GE(moves(report), 2u) << report.at("replans").dump();
  expect_undisturbed(report, kModel);
}

TEST_F(ReplanTest, SnapshotsInFlightSurviveMove) {
  const std::string store = folder_ / "store";
  train_with("first.json",
             {twice_,
              if_better_,
              {"--on-loss", "continue", "--checkpoint-every", "1", "--data-dir", store,
               "--check-replicas", "1"}},
             "9");
  const json resumed = train_with("second.json", {{"--resume", "latest", "--data-dir", store}});
  EXPECT_EQ(resumed.at("losses").size(), 5u);
  const auto whole = undisturbed(kModel, 14);
  for (const auto& [step, loss] : bits(resumed)) EXPECT_EQ(loss, whole.at(step)) << step;
}

}  // namespace
}  // namespace systemtest
