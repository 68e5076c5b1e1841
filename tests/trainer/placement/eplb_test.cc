#include "trainer/placement/eplb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetrain {
namespace {

using testing::ElementsAre;

// The example of the balancer's README: 2 layers of 12 experts, 16 replicas, 4 groups, 2 nodes of 4
// GPUs.
const std::vector<std::vector<uint64_t>> kExample = {
    {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
    {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};

TEST(EplbTest, ReproducesThePublishedExample) {
  const PlacementRequest request{
      .loads = kExample, .ranks = 8, .slots_per_rank = 2, .nodes = 2, .expert_groups = 4};
  const auto layers = plan_placement(PolicyName::kEplb, request);
  ASSERT_TRUE(layers.ok()) << layers.error().message;
  EXPECT_EQ((*layers)[0],
            (LayerSlots{{5, 6}, {5, 7}, {8, 4}, {3, 4}, {10, 9}, {10, 2}, {0, 1}, {11, 1}}));
  EXPECT_EQ((*layers)[1],
            (LayerSlots{{7, 10}, {6, 8}, {6, 11}, {8, 9}, {2, 4}, {5, 1}, {5, 0}, {3, 1}}));
}

TEST(EplbTest, BalancesGloballyIfNodesDoNotDivideGroups) {
  PlacementRequest request{.loads = kExample, .ranks = 8, .slots_per_rank = 2};
  const auto global = plan_eplb(request);
  request.nodes = 2;
  request.expert_groups = 3;
  EXPECT_EQ(plan_eplb(request), global);
}

TEST(EplbTest, PacksHeaviestFirstIntoLightestPack) {
  EXPECT_THAT(pack_evenly({5, 1, 1, 1, 1, 3}, 2),
              ElementsAre(ElementsAre(0, 3, 4), ElementsAre(5, 1, 2)));
}

}  // namespace
}  // namespace moetrain
