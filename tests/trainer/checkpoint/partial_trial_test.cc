// The trial of the age-aware selector (trainer/partial/age_trial.h) in a run: its decisions, and
// its state across resumes.
#include <gtest/gtest.h>

#include <vector>

#include "tests/trainer/checkpoint/partial_history.h"

namespace moetrain {
namespace {

// An expert gets half of what the one before it gets: to weigh age pays, and a resume knows it.
TEST(PartialTrialTest, AgeAwareIsLoadAwareUntilAgeHasProvedBetter) {
  const std::vector<StateUnit> units = small_units();
  const ComputePlacement placement = *static_placement(kLayers, kExperts, 3);
  PartialCheckpoint ours(units, placement, {.k = 1, .selector = Selector::kAgeAware});
  PartialCheckpoint theirs(units, placement, {.k = 1, .selector = Selector::kLoadAware});
  ExpertStamps stamps(kGrid);
  ExpertStamps stamps_of_theirs(kGrid);
  std::vector<int64_t> routed(kGrid.size());
  uint64_t step = 0;
  while (ours.state().trial.weight == AgeWeight::kNone) {
    ASSERT_LT(++step, 200u);
    for (size_t i = 0; i < routed.size(); ++i) routed[i] += 320 >> i % kExperts;
    const AgeTrialScore before = ours.state().trial;
    const auto plan = ours.next(step, {routed, routed}, false, stamps);
    if (ours.state().trial.weight != AgeWeight::kNone) break;
    EXPECT_EQ(plan.units, theirs.next(step, {routed, routed}, false, stamps_of_theirs).units);
    EXPECT_EQ(before == ours.state().trial, step == 1) << "the first one is full: nothing to judge";
  }
  EXPECT_GT(step, 2u);
  PartialCheckpoint resumed(units, placement, {.k = 1, .selector = Selector::kAgeAware});
  ASSERT_TRUE(resumed.resume(ours.state(), routed, stamps).ok());
  EXPECT_EQ(resumed.state().trial, ours.state().trial);
  PartialCheckpoint joined(units, placement, {.k = 1, .selector = Selector::kAgeAware});
  ASSERT_TRUE(joined.take_over(ours.handover(), routed).ok());
  EXPECT_EQ(joined.state().trial, ours.state().trial);
}

// The disk has nothing of what came back from memory, so it is saved first. The rules are judged by
// what is lost, and that is what the versions say.
TEST(PartialTrialTest, WhatCameFromMemoryIsAsOldAsItIs) {
  const std::vector<StateUnit> units = small_units();
  const ComputePlacement placement = *static_placement(kLayers, kExperts, 3);
  const PartialOptions options{
      .k = 1, .k_snapshot = 2, .selector = Selector::kAgeAware, .plt_budget = 1};
  PartialCheckpoint before(units, placement, options);
  ExpertStamps stamps(kGrid);
  std::vector<int64_t> routed(kGrid.size());
  const auto step_of = [&](PartialCheckpoint& partial, uint64_t step) {
    for (size_t i = 0; i < routed.size(); ++i) routed[i] += i % kExperts == 0 ? 100 : 10;
    return partial.next(step, {routed, routed}, false, stamps).experts.size();
  };
  uint64_t step = 0;
  while (step < 10) step_of(before, ++step);
  const std::vector<int64_t> at_resume = routed;
  const ExpertStamps saved = stamps;
  const auto score_after = [&](const std::vector<int64_t>& in_memory) {
    routed = at_resume;
    stamps = saved;
    PartialCheckpoint resumed(units, placement, options);
    EXPECT_TRUE(resumed.resume(before.state(), routed, stamps, in_memory).ok());
    for (uint64_t after = 1; after <= 3; ++after) {
      EXPECT_LT(step_of(resumed, step + after), kGrid.size()) << "of all there is no choice";
    }
    return resumed.state().trial;
  };
  const AgeTrialScore from_disk = score_after({});
  EXPECT_GT(from_disk.lost, before.state().trial.lost);
  EXPECT_EQ(score_after(std::vector<int64_t>(kGrid.size(), 1)), from_disk);
}

}  // namespace
}  // namespace moetrain
