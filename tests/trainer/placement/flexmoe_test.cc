// flexmoe: when it changes a placement, and what ranks that lost slots keep.
#include "trainer/placement/flexmoe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/placement/judge.h"

namespace moetrain {
namespace {

PlacementRequest zipf_request(uint32_t ranks, uint32_t slots, uint32_t experts) {
  PlacementRequest request{.ranks = ranks, .slots_per_rank = slots};
  std::vector<uint64_t>& loads = request.loads.emplace_back();
  for (uint64_t e = 0; e < experts; ++e) loads.push_back(12'000 / (e + 1));
  return request;
}

TEST(FlexmoeTest, ChangesPlacementOnlyIfItPays) {
  PlacementRequest request = zipf_request(8, 4, 16);
  request.current = plan_flexmoe(request);
  EXPECT_EQ(plan_flexmoe(request), request.current) << "its own plan is good enough for it";
  PlacementRequest even = request;
  even.current.clear();
  even.loads = {std::vector<uint64_t>(16, 1)};
  const auto begin = plan_flexmoe(even);
  request.current = begin;
  EXPECT_EQ(plan_flexmoe(request, {.copy = 1e9}), begin) << "a copy is never worth that much";
  const auto moved = plan_flexmoe(request);
  EXPECT_LT(judge_balance(moved, request)->max_over_mean,
            0.7 * judge_balance(begin, request)->max_over_mean);
  EXPECT_LT(judge_balance(moved, request)->replicas_to_move, 32u);
}

TEST(FlexmoeTest, CompletesIncompletePlacement) {
  PlacementRequest request = zipf_request(4, 2, 4);
  request.current = {{{0, 0, 1}, {0, 1}, {}, {1}}};
  const auto layers = plan_placement(PolicyName::kFlexmoe, request);
  ASSERT_TRUE(layers.ok());
  EXPECT_TRUE(check_covers((*layers)[0], 4).ok());
  for (const auto& rank : (*layers)[0]) EXPECT_EQ(rank.size(), 2u);
}

// Ranks have fewer slots than before: the least asked experts lose replicas.
TEST(FlexmoeTest, KeepsReplicasOfMostLoadedExperts) {
  PlacementRequest request{.loads = {{10, 20, 90}}, .ranks = 3, .slots_per_rank = 2};
  request.current = {{{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}};
  const auto layers = plan_flexmoe(request, {.copy = 1e9});
  std::vector<int> replicas(3);
  for (const auto& rank : layers[0]) {
    EXPECT_EQ(rank.size(), 2u);
    for (const uint32_t expert : rank) ++replicas[expert];
  }
  EXPECT_EQ(replicas, (std::vector<int>{1, 2, 3})) << "the idler one makes room for who has none";
}

}  // namespace
}  // namespace moetrain
