// The closed forms of costs.h, each by hand.
#include "trainer/simulate/sharded/costs.h"

#include <gtest/gtest.h>

#include "tests/trainer/simulate/sharded/sharded_cluster.h"

namespace moetrain::simulate::sharded {
namespace {

class ShardedCosts : public testing::Test {
 protected:
  ShardedModel model_ = simtest::hand_model();
  const Shape& shape_ = model_.shapes[0];
};

TEST_F(ShardedCosts, ExpertTimeIsTokensPlusFixedTime) {
  // 3 * 10 * 10 parameters, two operations each, 600,000 operations a second.
  EXPECT_DOUBLE_EQ(expert_seconds(model_, shape_, 120), 0.120);
  model_.expert_fixed_us = 7000;
  EXPECT_DOUBLE_EQ(expert_seconds(model_, shape_, 120), 0.127);
}

TEST_F(ShardedCosts, DensePartIsProjectionsAndCausalAttention) {
  // 4 * 10 * (10 + 10) + 2 * 10 * 90 = 2,600 operations a token, 2.6 million a second.
  EXPECT_DOUBLE_EQ(dense_seconds(model_, shape_, 90), 0.090);
  model_.sequence_tokens = 180;
  EXPECT_DOUBLE_EQ(dense_seconds(model_, shape_, 90), 90 * (800 + 3600) / 2.6e6);
  EXPECT_DOUBLE_EQ(head_seconds(model_, shape_, 90), 90 * 2 * 10 * 13 / 2.6e6);
}

TEST_F(ShardedCosts, AllToAllTakesTimeOfSlowerLink) {
  // 20 bytes a token: 60 within take 10 ms, 7.2 between as long.
  EXPECT_DOUBLE_EQ(all_to_all_seconds(model_, shape_, {{}, 60, 0}), 0.010);
  EXPECT_DOUBLE_EQ(all_to_all_seconds(model_, shape_, {{}, 60, 14.4}), 0.020);
  model_.latency_us = 500;
  EXPECT_DOUBLE_EQ(all_to_all_seconds(model_, shape_, {{}, 60, 0}), 0.0105);
}

TEST_F(ShardedCosts, RestoreMovesPartsOfOtherRanks) {
  // An expert of 300 and 420 dense parameters, 2 bytes each; a rank owns a quarter.
  EXPECT_DOUBLE_EQ(dense_parameters(model_, shape_), 420);
  EXPECT_DOUBLE_EQ(restore_bytes(model_, shape_, 1), 1440 * 0.75);
  EXPECT_DOUBLE_EQ(restore_bytes(model_, shape_, 2), 2040 * 0.75);
  // Half of each rank's 1,440 bytes is on the other node, whose link both ranks share.
  const std::vector<uint32_t> one(4, 1);
  EXPECT_DOUBLE_EQ(restore_seconds(model_, shape_, one), 1440 / 1.44e4);
  // Within the node a rank gets a quarter.
  model_.between_bytes_per_s = 1e18;
  EXPECT_DOUBLE_EQ(restore_seconds(model_, shape_, one), 360 / 1.2e5);
  model_.between_bytes_per_s = 1.44e4;
  // The node with most to restore sets the pace.
  EXPECT_DOUBLE_EQ(restore_seconds(model_, shape_, std::vector<uint32_t>{1, 1, 2, 2}),
                   2040 / 1.44e4);
}

TEST_F(ShardedCosts, ReshardIsARestoreOfGradients) {
  const std::vector<uint32_t> one(4, 1);
  EXPECT_DOUBLE_EQ(reshard_seconds(model_, shape_, one), restore_seconds(model_, shape_, one));
  model_.gradient_bytes = 8;
  EXPECT_DOUBLE_EQ(reshard_seconds(model_, shape_, one), 4 * restore_seconds(model_, shape_, one));
}

TEST_F(ShardedCosts, OptimizerUpdatesAnEvenPart) {
  // 2 * (2 * 300 + 420) + 260 parameters on four ranks.
  EXPECT_DOUBLE_EQ(optimizer_seconds(model_, shape_), 2300.0 / 4 * 4 / 23'000);
}

TEST(ShardedSchedule, PrefetchHidesBehindCompute) {
  const LayerTimes layer{.dense = 1, .experts = 2, .all_to_all = 9, .restore = 4, .reshard = 5};
  EXPECT_DOUBLE_EQ(exposed_forward(layer, {.prefetch = 0}), 4);
  EXPECT_DOUBLE_EQ(exposed_forward(layer, {.prefetch = 1}), 3);
  EXPECT_DOUBLE_EQ(exposed_forward(layer, {.prefetch = 2}), 1);
  // Backward: twice the compute, three times with recompute; inline re-shards are exposed.
  const auto backward = [&](uint32_t prefetch, bool delayed, double recompute) {
    return exposed_backward(layer, {.prefetch = prefetch, .delayed_reshard = delayed}, recompute);
  };
  EXPECT_DOUBLE_EQ(backward(0, false, 0), 4 + 5);
  EXPECT_DOUBLE_EQ(backward(1, false, 0), 4 - 2 + 5);
  EXPECT_DOUBLE_EQ(backward(2, false, 0), 0 + 5);
  EXPECT_DOUBLE_EQ(backward(2, true, 0), 5 - (6 - 4)) << "restore and re-shard share the links";
  EXPECT_DOUBLE_EQ(backward(2, true, 1), 0) << "9 of compute hide 9";
  EXPECT_DOUBLE_EQ(backward(0, true, 0), 4) << "6 of compute hide the re-shard's 5";
}

TEST_F(ShardedCosts, PlannerCostsMatchClusterLinks) {
  const LaerCosts costs = laer_costs(model_, shape_);
  // A token: 1 ms in an expert, 20 bytes on the link of a rank, or on half the link of a node.
  EXPECT_DOUBLE_EQ(costs.within_node, 20 / 1.2e5 / 1e-3);
  EXPECT_DOUBLE_EQ(costs.between_nodes, 20 / 0.72e4 / 1e-3);
  EXPECT_DOUBLE_EQ(costs.recompute, 1);
}

}  // namespace
}  // namespace moetrain::simulate::sharded
