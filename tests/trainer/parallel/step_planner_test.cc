// StepPlanner: its answers depend on counts and steps alone, never on when they are asked for.
#include "trainer/parallel/step_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace moetrain {
namespace {

using testing::HasSubstr;

constexpr uint32_t kPlannedLayers = 3;
constexpr uint32_t kPlannedExperts = 8;

StepPlannerOptions options_for(PolicyName policy, uint64_t every, bool threaded) {
  return {.plan = {.policy = policy,
                   .layers = kPlannedLayers,
                   .experts = kPlannedExperts,
                   .ranks = 4,
                   .slots_per_rank = 4,
                   .node_of_rank = {0, 0, 1, 1}},
          .replan_every = every,
          .threaded = threaded};
}

// Loads that move from expert to expert.
std::vector<int64_t> counts_of(uint64_t step) {
  std::mt19937_64 random(step / 3);
  std::vector<int64_t> counts;
  for (uint32_t layer = 0; layer < kPlannedLayers; ++layer) {
    int64_t left = 4'096;
    for (uint32_t expert = 1; expert < kPlannedExperts; ++expert) {
      counts.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(left)));
      left -= counts.back();
    }
    counts.push_back(left);
  }
  return counts;
}

LoadWindow window_after(uint64_t steps) {
  LoadWindow window(kPlannedLayers, kPlannedExperts);
  for (uint64_t step = 1; step <= steps; ++step) window.record(counts_of(step));
  return window;
}

std::unique_ptr<StepPlanner> planner_for(const StepPlannerOptions& options,
                                         LoadWindow window = {kPlannedLayers, kPlannedExperts}) {
  auto planner = StepPlanner::make(options, std::move(window));
  EXPECT_TRUE(planner.ok()) << planner.error().message;
  return std::move(*planner);
}

ComputePlacement taken(StepPlanner& planner, uint64_t step) {
  const auto placement = planner.take(step);
  EXPECT_TRUE(placement.ok()) << placement.error().message;
  return **placement;
}

// Steps first .. last, as a trainer does them.
std::vector<ComputePlacement> placements(StepPlanner& planner, uint64_t first, uint64_t last) {
  std::vector<ComputePlacement> all;
  for (uint64_t step = first; step <= last; ++step) {
    all.push_back(taken(planner, step));
    planner.start(step + 1);
    planner.record(counts_of(step));
  }
  return all;
}

constexpr PolicyName kStepPolicies[] = {PolicyName::kStatic, PolicyName::kEplb, PolicyName::kLaer,
                                        PolicyName::kFrontier};

TEST(StepPlannerTest, BackgroundAndInlinePlansAreEqual) {
  for (const PolicyName policy : kStepPolicies) {
    const auto threaded = planner_for(options_for(policy, 1, true));
    const auto in_line = planner_for(options_for(policy, 1, false));
    EXPECT_EQ(placements(*threaded, 1, 40), placements(*in_line, 1, 40)) << policy_name(policy);
    EXPECT_EQ(threaded->times().plans, 40u);
    EXPECT_EQ(taken(*threaded, 41).node_of_rank, (std::vector<uint32_t>{0, 0, 1, 1}));
    EXPECT_EQ(in_line->times().waits, 1u) << "only the first one was not started before";
  }
}

TEST(StepPlannerTest, UsesCountsUpToTwoStepsBefore) {
  const StepPlannerOptions options = options_for(PolicyName::kLaer, 1, true);
  const auto planner = planner_for(options);
  const std::vector<ComputePlacement> all = placements(*planner, 1, 20);
  for (uint64_t step = 1; step <= 20; ++step) {
    const LayerLoads loads = step < 3 ? LayerLoads() : window_after(step - 2).sum(step - 2);
    const auto expected = plan_step(options.plan, loads);
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    EXPECT_EQ(all[step - 1].slots, *expected) << "step " << step;
  }
  EXPECT_NE(all[5], all[12]) << "the loads have moved";
}

// The counts of the step before may be known or not when a plan is started.
TEST(StepPlannerTest, IgnoresCountsThatComeEarly) {
  const auto late = planner_for(options_for(PolicyName::kLaer, 1, true));
  const auto early = planner_for(options_for(PolicyName::kLaer, 1, true));
  for (uint64_t step = 1; step <= 20; ++step) {
    EXPECT_EQ(taken(*late, step), taken(*early, step)) << "step " << step;
    early->start(step + 1);
    early->record(counts_of(step));
    late->record(counts_of(step));
    late->start(step + 1);
  }
}

TEST(StepPlannerTest, ChangesOnlyEveryFewSteps) {
  const StepPlannerOptions options = options_for(PolicyName::kLaer, 4, true);
  const auto planner = planner_for(options);
  const auto each = planner_for(options_for(PolicyName::kLaer, 1, false));
  const std::vector<ComputePlacement> all = placements(*planner, 1, 24);
  const std::vector<ComputePlacement> wanted = placements(*each, 1, 24);
  for (uint64_t step = 4; step <= 24; ++step) {
    EXPECT_EQ(all[step - 1], wanted[step - step % 4 - 1]) << "step " << step;
  }
  EXPECT_EQ(all[2], wanted[0]) << "static before the first plan";
  EXPECT_EQ(planner->times().plans, 7u) << "static, then steps 4, 8, .. 24";

  const auto never = planner_for(options_for(PolicyName::kLaer, 0, true), window_after(50));
  EXPECT_EQ(taken(*never, 51), wanted[0]);
  EXPECT_EQ(taken(*never, 60), wanted[0]);
}

TEST(StepPlannerTest, RestartChangesNoPlan) {
  for (const uint64_t every : {1, 2}) {
    const StepPlannerOptions options = options_for(PolicyName::kLaer, every, true);
    const auto planner = planner_for(options);
    const std::vector<ComputePlacement> all = placements(*planner, 1, 30);
    for (const uint64_t saved : {0, 1, 2, 6, 7, 13, 20}) {
      const auto window =
          LoadWindow::decode(window_after(saved).encode(), kPlannedLayers, kPlannedExperts, saved);
      ASSERT_TRUE(window.ok()) << window.error().message;
      const auto restarted = planner_for(options, *window);
      const std::vector<ComputePlacement> again = placements(*restarted, saved + 1, 30);
      for (uint64_t step = saved + 1; step <= 30; ++step) {
        EXPECT_EQ(again[step - saved - 1], all[step - 1]) << "step " << step << " after " << saved;
      }
    }
  }
}

// A checkpoint may be older than the counts that the plan in force was made from.
TEST(StepPlannerTest, ReplansAfterRestartBetweenPlans) {
  const StepPlannerOptions options = options_for(PolicyName::kLaer, 100, true);
  const auto planner = planner_for(options, window_after(250));
  const auto expected = plan_step(options.plan, window_after(249).sum(249));
  EXPECT_EQ(taken(*planner, 251).slots, *expected);
  EXPECT_EQ(taken(*planner, 252).slots, *expected);
  EXPECT_EQ(planner->times().plans, 1u);
}

TEST(StepPlannerTest, KeepsInitialPlacementWithoutCounts) {
  const StepPlannerOptions options = options_for(PolicyName::kLaer, 1, true);
  const auto planner = planner_for(options, LoadWindow(kPlannedLayers, kPlannedExperts, 100));
  const std::vector<ComputePlacement> all = placements(*planner, 101, 110);
  const ComputePlacement fixed = taken(*planner_for(options), 1);
  EXPECT_EQ(all[0], fixed);
  EXPECT_EQ(all[1], fixed);
  EXPECT_NE(all[2], fixed) << "step 103 knows the counts of step 101";
}

TEST(StepPlannerTest, CountsWaits) {
  const auto planner = planner_for(options_for(PolicyName::kLaer, 1, true));
  taken(*planner, 1);  // no planning was started
  EXPECT_EQ(planner->times().plans, 1u);
  EXPECT_EQ(planner->times().waits, 1u);
  EXPECT_GT(planner->times().waited_ns, 0);
  EXPECT_GT(planner->times().planning_ns, 0);
}

TEST(StepPlannerTest, CanBeDestroyedWhilePlanning) {
  for (int round = 0; round < 20; ++round) {
    const auto planner = planner_for(options_for(PolicyName::kFrontier, 1, true), window_after(9));
    planner->start(10);
  }
}

TEST(StepPlannerTest, RefusesInvalidOptions) {
  const auto refusal = [](StepPlanOptions plan) {
    const LoadWindow window(plan.layers, plan.experts);
    const auto planner = StepPlanner::make({.plan = std::move(plan)}, window);
    return planner.ok() ? "accepted" : planner.error().message;
  };
  const StepPlanOptions good = options_for(PolicyName::kLaer, 1, true).plan;
  EXPECT_EQ(refusal(good), "accepted");
  StepPlanOptions bad = good;
  bad.slots_per_rank = 1;
  EXPECT_THAT(refusal(bad), HasSubstr("4 ranks of 1 slots are 4 slots; 8 experts"));
  bad = good;
  bad.policy = PolicyName::kLazarus;
  EXPECT_THAT(refusal(bad), HasSubstr("policy lazarus places replicas that hold state"));
  bad = good;
  bad.node_of_rank = {0, 0, 2, 2};
  EXPECT_THAT(refusal(bad), HasSubstr("no rank is on node 1"));
  bad.node_of_rank = {0, 0, 1};
  EXPECT_THAT(refusal(bad), HasSubstr("nodes of 3 ranks, there are 4"));
  bad.node_of_rank = {0, 0, 1, 4};
  EXPECT_THAT(refusal(bad), HasSubstr("rank 3 is on node 4 of 4 ranks"));
}

}  // namespace
}  // namespace moetrain
