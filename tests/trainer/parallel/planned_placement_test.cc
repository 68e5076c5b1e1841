// Placements planned for the beginning of a run.
#include "trainer/parallel/planned_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetrain {
namespace {

using testing::HasSubstr;

ModelConfig shape(uint32_t layers, uint32_t experts) {
  ModelConfig config;
  config.layers = layers;
  config.experts = experts;
  return config;
}

std::vector<size_t> replica_counts(const ComputePlacement& placement, uint32_t layer) {
  std::vector<size_t> counts;
  for (const auto& slots : slots_of_experts(placement, layer)) counts.push_back(slots.size());
  return counts;
}

TEST(PlannedPlacementTest, StaticWithoutSlotsHasOneReplicaEach) {
  const auto placement = plan_experts({}, shape(3, 8), 3, {});
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(*placement, *static_placement(3, 8, 3));
  EXPECT_THAT(plan_experts({}, shape(1, 4), 5, {}).error().message,
              HasSubstr("5 ranks for 4 experts"));
  EXPECT_FALSE(plan_experts({}, shape(1, 4), 0, {}).ok());
}

TEST(PlannedPlacementTest, LazarusFollowsLoadsWithMinimumReplicas) {
  const std::vector<int64_t> routed = {100, 100, 100, 3000, 5, 5, 5, 5};
  const auto placement =
      plan_experts({.policy = PolicyName::kLazarus, .slots = 4}, shape(2, 4), 4, routed);
  ASSERT_TRUE(placement.ok()) << placement.error().message;
  const auto first = replica_counts(*placement, 0);
  EXPECT_GT(first[3], first[0]) << "the hot expert has more";
  for (uint32_t layer = 0; layer < 2; ++layer) {
    for (const auto& holders : holders_of_experts(*placement, layer)) {
      EXPECT_GE(holders.size(), 2u) << "two of each unless asked otherwise";
    }
  }
}

TEST(PlannedPlacementTest, DefaultReplicasFitRanksAndSlots) {
  const PlacementOptions lazarus{.policy = PolicyName::kLazarus};
  const auto alone = plan_experts(lazarus, shape(1, 4), 1, {});
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  EXPECT_EQ(alone->ranks, 1u);
  // More ranks than experts is no trouble for replicas.
  const auto many = plan_experts(lazarus, shape(1, 3), 8, {});
  ASSERT_TRUE(many.ok()) << many.error().message;
  const auto tight = plan_experts({.policy = PolicyName::kLazarus, .slots = 1}, shape(1, 4), 4, {});
  EXPECT_TRUE(tight.ok()) << "one of each is what fits";
  const auto asked = plan_experts({.policy = PolicyName::kLazarus, .slots = 1, .replicas_min = 2},
                                  shape(1, 4), 4, {});
  EXPECT_FALSE(asked.ok()) << "but not what was asked for";
}

TEST(PlannedPlacementTest, StepsArePlannedForTheNodesOfRanks) {
  const StepPlanOptions without = step_plan_options({}, shape(2, 8), 4);
  EXPECT_TRUE(without.node_of_rank.empty());
  const std::vector<uint32_t> nodes = {0, 0, 1, 1};
  EXPECT_EQ(step_plan_options({}, shape(2, 8), 4, nodes).node_of_rank, nodes);
}

// The slots of a rank divide no whole blocks here, so the plan depends on the nodes.
TEST(PlannedPlacementTest, FirstStepIsPlannedForNodes) {
  const PlacementOptions laer{.policy = PolicyName::kLaer, .slots = 3};
  const std::vector<uint32_t> nodes = {0, 1, 1, 0};
  const auto first = plan_first_step(laer, shape(2, 4), 4, nodes);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->node_of_rank, nodes);
  const auto planned = plan_step(step_plan_options(laer, shape(2, 4), 4, nodes), {});
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  EXPECT_EQ(first->slots, *planned);
}

}  // namespace
}  // namespace moetrain
