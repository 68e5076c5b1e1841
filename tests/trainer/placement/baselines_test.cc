// flexmoe and laer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "trainer/placement/flexmoe.h"
#include "trainer/placement/judge.h"
#include "trainer/placement/laer.h"

namespace moetrain {
namespace {

PlacementRequest zipf_request(uint32_t ranks, uint32_t slots, uint32_t experts) {
  PlacementRequest request{.ranks = ranks, .slots_per_rank = slots};
  std::vector<uint64_t>& loads = request.loads.emplace_back();
  for (uint64_t e = 0; e < experts; ++e) loads.push_back(12'000 / (e + 1));
  return request;
}

TEST(FlexmoeTest, ChangesNothingThatDoesNotPay) {
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

TEST(FlexmoeTest, CompletesWhatRanksLost) {
  PlacementRequest request = zipf_request(4, 2, 4);
  request.current = {{{0, 0, 1}, {0, 1}, {}, {1}}};
  const auto layers = plan_placement(PolicyName::kFlexmoe, request);
  ASSERT_TRUE(layers.ok());
  EXPECT_TRUE(check_covers((*layers)[0], 4).ok());
  for (const auto& rank : (*layers)[0]) EXPECT_EQ(rank.size(), 2u);
}

// Token by token: from every rank of a node to the node's replicas in turn, or to all of them.
// Where ranks have fewer slots than they had.
TEST(FlexmoeTest, KeepsWhoIsAskedMost) {
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

TEST(LaerTest, CostsWhatRoutingEveryTokenCosts) {
  const LayerSlots slots = {{0, 1}, {0, 2}, {1, 1}, {3, 2}};
  const std::vector<uint64_t> loads = {2'400, 1'200, 4'800, 2'400};
  const LaerCosts costs{.within_node = 0.5, .between_nodes = 2, .recompute = 1};
  std::vector<double> computed(4);
  double communication = 0;
  for (uint32_t expert = 0; expert < 4; ++expert) {
    for (uint32_t source = 0; source < 4; ++source) {
      std::vector<uint32_t> all, near;
      for (uint32_t rank = 0; rank < 4; ++rank) {
        for (const uint32_t held : slots[rank]) {
          if (held != expert) continue;
          all.push_back(rank);
          if (rank / 2 == source / 2) near.push_back(rank);
        }
      }
      const auto& targets = near.empty() ? all : near;
      const double tokens =
          static_cast<double>(loads[expert]) / 4 / static_cast<double>(targets.size());
      for (const uint32_t target : targets) {
        computed[target] += tokens;
        if (target == source) continue;
        communication += tokens * (target / 2 == source / 2 ? 0.5 : 2);
      }
    }
  }
  EXPECT_NEAR(laer_cost(slots, loads, 2, costs),
              4 * communication + 4 * *std::max_element(computed.begin(), computed.end()), 1e-6);
}

TEST(LaerTest, PutsCopiesOnDifferentNodesFirst) {
  PlacementRequest request{.loads = {{800, 100, 100, 100}}, .ranks = 4, .slots_per_rank = 2};
  request.nodes = 2;
  const auto layers = plan_laer(request);
  uint32_t on_node[2] = {};
  for (uint32_t rank = 0; rank < 4; ++rank) {
    for (const uint32_t expert : layers[0][rank]) on_node[rank / 2] += expert == 0 ? 1 : 0;
  }
  EXPECT_GE(on_node[0], 1u);
  EXPECT_GE(on_node[1], 1u);
}

}  // namespace
}  // namespace moetrain
