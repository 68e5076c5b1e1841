// The trial of the risk-aware selector (trainer/partial/age_trial.h) in a run: what it decides, and
// that it goes along.
#include <gtest/gtest.h>

#include <vector>

#include "tests/trainer/checkpoint/partial_history.h"

namespace moetrain {
namespace {

// One expert of each layer gets nearly everything: to weigh age pays, and a resume knows it.
TEST(PartialTrialTest, RiskAwareIsLoadAwareUntilAgeHasProvedBetter) {
  const std::vector<StateUnit> units = small_units();
  const ExpertPlacement placement = *static_placement(kLayers, kExperts, 3);
  PartialCheckpoint ours(units, placement, {.k = 1, .selector = Selector::kRiskAware});
  PartialCheckpoint theirs(units, placement, {.k = 1, .selector = Selector::kLoadAware});
  ExpertStamps stamps(kGrid);
  ExpertStamps stamps_of_theirs(kGrid);
  std::vector<int64_t> routed(kGrid.size());
  uint64_t step = 0;
  while (!ours.state().trial.weigh_age) {
    ASSERT_LT(++step, 200u);
    for (size_t i = 0; i < routed.size(); ++i) routed[i] += i % kExperts == 0 ? 100 : 10;
    const AgeTrialScore before = ours.state().trial;
    const auto plan = ours.next(step, {routed, routed}, false, stamps);
    if (ours.state().trial.weigh_age) break;
    EXPECT_EQ(plan.units, theirs.next(step, {routed, routed}, false, stamps_of_theirs).units);
    EXPECT_EQ(before == ours.state().trial, step == 1) << "the first one is full: nothing to judge";
  }
  EXPECT_GT(step, 2u);
  PartialCheckpoint resumed(units, placement, {.k = 1, .selector = Selector::kRiskAware});
  ASSERT_TRUE(resumed.resume(ours.state(), routed, stamps).ok());
  EXPECT_EQ(resumed.state().trial, ours.state().trial);
  PartialCheckpoint joined(units, placement, {.k = 1, .selector = Selector::kRiskAware});
  ASSERT_TRUE(joined.take_over(ours.handover(), routed).ok());
  EXPECT_EQ(joined.state().trial, ours.state().trial);
}

}  // namespace
}  // namespace moetrain
