#include "trainer/simulate/sharded/dispatch.h"

#include <gtest/gtest.h>

#include <numeric>

#include "trainer/simulate/random.h"

namespace moetrain::simulate::sharded {
namespace {

TEST(ShardedDispatch, ReplicasOfANodeShareItsTokens) {
  // Expert 0 twice on the first node, once on the second; expert 1 on the second only.
  const LayerSlots slots{{0}, {0}, {0}, {1}};
  const TokenCounts tokens{{10, 0}, {30, 4}, {8, 0}, {2, 6}};
  const Dispatch sent = dispatch(slots, tokens, 2);
  EXPECT_EQ(sent.computed, (std::vector<double>{20, 20, 10, 10}));
  EXPECT_EQ(sent.busiest(), 20);
  EXPECT_EQ(sent.mean(), 15);
  // Rank 1 sends 15 of its 30 to rank 0, which is the most within a node.
  EXPECT_EQ(sent.within, 15);
  EXPECT_EQ(sent.between, 4);
}

TEST(ShardedDispatch, NodesWithoutReplicaSendToAllReplicas) {
  const LayerSlots slots{{0}, {0}, {1}, {1}, {0}, {1}};
  const TokenCounts tokens{{0, 6}, {0, 0}, {9, 0}, {0, 0}, {0, 0}, {0, 0}};
  const Dispatch sent = dispatch(slots, tokens, 2);
  // The first node's six tokens for expert 1 and the second's nine for expert 0 go to three each.
  EXPECT_EQ(sent.computed, (std::vector<double>{3, 3, 2, 2, 3, 2}));
  EXPECT_EQ(sent.within, 0);
  EXPECT_EQ(sent.between, 9) << "sent by the second node";
}

TEST(ShardedDispatch, AllReplicasMayShareAllTokens) {
  const Dispatch sent =
      dispatch({{0}, {0}, {0}, {1}}, {{9, 0}, {3, 0}, {0, 0}, {0, 0}}, 2, Sharing::kAll);
  EXPECT_EQ(sent.computed, (std::vector<double>{4, 4, 4, 0}));
  EXPECT_EQ(sent.within, 3);
  EXPECT_EQ(sent.between, 4);
}

TEST(ShardedDispatch, TwoSlotsOnARankAreTwoReplicas) {
  const Dispatch sent = dispatch({{0, 0}, {0}}, {{0}, {9}}, 2);
  EXPECT_EQ(sent.computed, (std::vector<double>{6, 3}));
  EXPECT_EQ(sent.within, 6);
}

TEST(ShardedDispatch, NoTokenIsLost) {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    const auto nodes = static_cast<uint32_t>(1 + random.below(4));
    const auto per_node = static_cast<uint32_t>(1 + random.below(4));
    const auto experts = static_cast<uint32_t>(1 + random.below(6));
    const uint32_t ranks = nodes * per_node;
    LayerSlots slots(ranks);
    for (uint32_t e = 0; e < experts; ++e) slots[random.below(ranks)].push_back(e);
    for (uint32_t i = 0; i < ranks; ++i) {
      slots[i].push_back(static_cast<uint32_t>(random.below(experts)));
    }
    TokenCounts tokens(ranks, std::vector<double>(experts));
    double all = 0;
    for (auto& row : tokens) {
      for (double& value : row) all += value = static_cast<double>(random.below(100));
    }
    const Dispatch sent = dispatch(slots, tokens, per_node);
    EXPECT_NEAR(std::accumulate(sent.computed.begin(), sent.computed.end(), 0.0), all, 1e-6);
    EXPECT_LE(sent.within, all + 1e-6);
    EXPECT_LE(sent.between, all + 1e-6);
    if (nodes == 1) {
      EXPECT_EQ(sent.between, 0);
    }
    if (per_node == 1) {
      EXPECT_EQ(sent.within, 0);
    }
  }
}

}  // namespace
}  // namespace moetrain::simulate::sharded
