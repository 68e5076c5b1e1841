// step_plan: full slots, every expert placed, for any policy and shape.
#include "trainer/placement/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "trainer/placement/judge.h"

namespace moetrain {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

constexpr PolicyName kStepPolicies[] = {PolicyName::kStatic, PolicyName::kEplb, PolicyName::kLaer,
                                        PolicyName::kFrontier};

StepPlanOptions shape(PolicyName policy, uint32_t experts, uint32_t ranks, uint32_t slots) {
  return {.policy = policy,
          .layers = 2,
          .experts = experts,
          .ranks = ranks,
          .slots_per_rank = slots,
          .node_of_rank = {}};
}

std::vector<LayerSlots> planned(const StepPlanOptions& options, const LayerLoads& loads) {
  const auto layers = plan_step(options, loads);
  EXPECT_TRUE(layers.ok()) << layers.error().message;
  return *layers;
}

TEST(StepPlanTest, FillsEverySlotForEveryShape) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    const uint32_t ranks = 1 + random() % 9;
    const uint32_t experts = 1 + random() % 12;
    const uint32_t slots = (experts + ranks - 1) / ranks + random() % 4;
    LayerLoads loads(2, std::vector<uint64_t>(experts));
    for (auto& layer : loads) {
      for (uint64_t& load : layer) load = round % 10 == 0 ? 0 : random() % 1000;
    }
    for (const PolicyName policy : kStepPolicies) {
      const StepPlanOptions options = shape(policy, experts, ranks, slots);
      for (const LayerLoads& known : {LayerLoads(), loads}) {
        const std::vector<LayerSlots> layers = planned(options, known);
        ASSERT_THAT(layers, SizeIs(2));
        for (const LayerSlots& layer : layers) {
          EXPECT_THAT(layer, SizeIs(ranks));
          EXPECT_THAT(layer, Each(SizeIs(std::min(slots, experts)))) << policy_name(policy);
          EXPECT_TRUE(check_covers(layer, experts).ok());
        }
        EXPECT_EQ(layers, planned(options, known)) << "the same again";
      }
    }
  }
}

TEST(StepPlanTest, IsStaticWithoutCounts) {
  const LayerSlots blocks = {{0, 1}, {2, 3}, {0, 1}, {2, 3}};
  for (const PolicyName policy : kStepPolicies) {
    EXPECT_THAT(planned(shape(policy, 4, 4, 2), {}), Each(blocks));
  }
  const LayerLoads skewed = {{9'000, 1, 1, 1}, {1, 1, 1, 9'000}};
  EXPECT_THAT(planned(shape(PolicyName::kStatic, 4, 4, 2), skewed), Each(blocks));
  EXPECT_NE(planned(shape(PolicyName::kLaer, 4, 4, 2), skewed)[0], blocks);
}

// Slots that do not divide into whole blocks: replicas as even as possible.
TEST(StepPlanTest, StaticIsEvenWithoutWholeBlocks) {
  for (const auto& [experts, ranks, slots] :
       {std::tuple{16u, 3u, 8u}, {3u, 5u, 1u}, {16u, 5u, 4u}, {7u, 4u, 3u}}) {
    const LayerSlots layer = planned(shape(PolicyName::kStatic, experts, ranks, slots), {})[0];
    std::vector<uint32_t> replicas(experts);
    for (const auto& rank : layer) {
      for (const uint32_t expert : rank) ++replicas[expert];
    }
    EXPECT_LE(std::ranges::max(replicas) - std::ranges::min(replicas), 1u);
  }
}

TEST(StepPlanTest, FrontierPlansForBalanceAlone) {
  LayerLoads loads(2);
  for (uint64_t e = 1; e <= 16; ++e) {
    loads[0].push_back(100'000 / e);
    loads[1].push_back(7 * e);
  }
  const StepPlanOptions options = shape(PolicyName::kFrontier, 16, 4, 8);
  const std::vector<LayerSlots> layers = planned(options, loads);
  for (size_t layer = 0; layer < 2; ++layer) {
    const std::vector<double> of_rank = rank_loads(layers[layer], loads[layer]);
    const double sum = std::accumulate(of_rank.begin(), of_rank.end(), 0.0);
    EXPECT_LT(std::ranges::max(of_rank), 1.02 * sum / 4);
  }
}

TEST(StepPlanTest, RefusesMoreTokensThanCanBePlanned) {
  const StepPlanOptions options = shape(PolicyName::kLaer, 2, 2, 1);
  const LayerLoads loads(2, {kPlacementTokensMax, 1});
  const auto layers = plan_step(options, loads);
  ASSERT_FALSE(layers.ok());
  EXPECT_THAT(layers.error().message, HasSubstr("layer 0 has more than"));
}

}  // namespace
}  // namespace moetrain
