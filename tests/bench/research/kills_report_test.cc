#include "bench/research/kills_report.h"

#include <gtest/gtest.h>

namespace bench {
namespace {

using nlohmann::json;

// A loss after which the ranks resumed in 0.3 s, bit for bit at the same state.
KillTrial a_right_trial() {
  KillTrial trial{.ranks = {2}, .rolled_back_exactly = true, .same_bits = true};
  trial.figures.new_step_seconds = 0.3;
  trial.figures.step_seconds = 0.05;
  trial.figures.completed = 28;
  trial.figures.resumed_at = 28;
  return trial;
}

json row_of(const KillArmTrials& arm) { return kills_json({arm}, {})["rows"][0]; }

KillArmTrials with_trials(bool same_bits, uint64_t redone_max, const KillTrial& last) {
  KillArmTrials arm{.arm = kKillArms[0],
                    .same_bits = same_bits,
                    .redone_max = redone_max,
                    .victims = {},
                    .trials = std::vector<KillTrial>(9, a_right_trial())};
  arm.trials.push_back(last);
  return arm;
}

TEST(KillsJson, FastBitExactRecoveryPasses) {
  const json row = row_of(with_trials(true, 1, a_right_trial()));
  EXPECT_EQ(row["verdict"], "pass");
  EXPECT_EQ(row["limit"], 1.0);
  EXPECT_DOUBLE_EQ(row["value"], 0.3);
}

TEST(KillsJson, RedoingTooManyStepsFails) {
  KillTrial late = a_right_trial();
  late.figures.resumed_at = 27;
  EXPECT_EQ(row_of(with_trials(true, 1, late))["verdict"], "pass");
  EXPECT_EQ(row_of(with_trials(true, 0, late))["verdict"], "fail");
  late.figures.resumed_at = 26;
  EXPECT_EQ(row_of(with_trials(true, 1, late))["verdict"], "fail");
}

TEST(KillsJson, OtherBitsFailIfExactnessRequired) {
  KillTrial other = a_right_trial();
  other.same_bits = false;
  other.loss_difference = 1e-7;
  EXPECT_EQ(row_of(with_trials(true, 1, other))["verdict"], "fail");
  EXPECT_EQ(row_of(with_trials(false, 1, other))["verdict"], "pass");
  other.loss_difference = 1e-4;
  EXPECT_EQ(row_of(with_trials(false, 1, other))["verdict"], "fail");
}

TEST(KillsJson, InexactRecoveryFails) {
  KillTrial inexact = a_right_trial();
  inexact.rolled_back_exactly = false;
  EXPECT_EQ(row_of(with_trials(false, 1, inexact))["verdict"], "fail");
}

TEST(KillsJson, SlowRecoveryFails) {
  KillArmTrials arm = with_trials(true, 1, a_right_trial());
  for (KillTrial& trial : arm.trials) trial.figures.new_step_seconds = 1.5;
  EXPECT_EQ(row_of(arm)["verdict"], "fail");
  for (KillTrial& trial : arm.trials) trial.figures.step_seconds = 0.4;
  EXPECT_EQ(row_of(arm)["verdict"], "inconclusive") << "steps of a busy machine";
}

}  // namespace
}  // namespace bench
