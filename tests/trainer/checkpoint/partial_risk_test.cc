// Selection of experts if some experts are less likely to be lost than others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/partial_history.h"

namespace moetrain {
namespace {

using testing::ElementsAre;

// Plan of the second of two snapshots: a full one, and one after these tokens to each layer.
PartialCheckpoint::Plan second_snapshot(PartialCheckpoint& partial,
                                        const std::vector<int64_t>& tokens) {
  ExpertStamps stamps(kGrid);
  std::vector<int64_t> routed(kGrid.size());
  const std::vector<int64_t> updates(kGrid.size(), 1);
  partial.next(1, {routed, updates}, false, stamps);
  for (size_t i = 0; i < kGrid.size(); ++i) routed[i] = tokens[i % kExperts];
  return partial.next(2, {routed, updates}, false, stamps);
}

ComputePlacement in_both_layers(const LayerSlots& slots) {
  return {
      .ranks = static_cast<uint32_t>(slots.size()), .experts = kExperts, .slots = {kLayers, slots}};
}

// Expert 0 has most tokens and is on all four ranks: memory is for experts that are lost sooner.
TEST(PartialRiskTest, MemoryLevelKeepsExpertsWithOneHolder) {
  const std::vector<StateUnit> units = small_units();
  const ComputePlacement placement = in_both_layers({{0, 1, 3}, {0, 2, 3}, {0, 4, 5}, {0, 4, 5}});
  const std::vector<int64_t> tokens = {50, 13, 12, 1, 1, 1};
  PartialOptions options{.k = 1, .k_snapshot = 2, .survivors_continue = true};
  PartialCheckpoint continuing(units, placement, options);
  const auto plan = second_snapshot(continuing, tokens);
  EXPECT_THAT(plan.experts, ElementsAre(1, kExperts + 1));
  EXPECT_THAT(plan.memory_experts, ElementsAre(2, kExperts + 2));
  // If all ranks roll back, all experts run the same risk.
  options.survivors_continue = false;
  PartialCheckpoint rewinding(units, placement, options);
  const auto other = second_snapshot(rewinding, tokens);
  EXPECT_THAT(other.experts, ElementsAre(0, kExperts));
  EXPECT_THAT(other.memory_experts, ElementsAre(1, kExperts + 1));
}

// Two replicas on one node fail together; two replicas on two nodes fail independently.
TEST(PartialRiskTest, ReplicasOnOneNodeCountAsOne) {
  const std::vector<StateUnit> units = small_units();
  // Experts 0 and 1 are on ranks 0 and 1, the others on ranks 2 and 0 or 3 and 1.
  const ComputePlacement placement = in_both_layers({{0, 1, 2, 3}, {0, 1, 4, 5}, {2, 3}, {4, 5}});
  const PartialOptions options{.k = 1, .k_snapshot = 2, .survivors_continue = true};
  const std::vector<int64_t> tokens = {10, 10, 12, 12, 12, 12};
  PartialCheckpoint alone(units, placement, options);
  for (const uint32_t expert : second_snapshot(alone, tokens).experts) {
    EXPECT_GE(expert % kExperts, 2u) << "each rank by itself: who has most tokens";
  }
  PartialCheckpoint by_node(units, placement, options);
  by_node.set_domains({0, 0, 1, 1});
  const auto plan = second_snapshot(by_node, tokens);
  std::vector<uint32_t> first_layer = {plan.experts.front(), plan.memory_experts.front()};
  EXPECT_THAT(first_layer, testing::UnorderedElementsAre(0, 1));

  // Two replicas on one node are as risky as one replica: one token more or less decides.
  const ComputePlacement once = in_both_layers({{0, 2, 3}, {0, 4, 5}, {1, 2, 3}, {4, 5}});
  for (const int64_t more : {-1, 1}) {
    PartialCheckpoint either(units, once, options);
    either.set_domains({0, 0, 1, 1});
    const auto chosen = second_snapshot(either, {20, 20 + more, 1, 1, 1, 1}).experts;
    EXPECT_THAT(chosen, more < 0 ? ElementsAre(0, kExperts) : ElementsAre(1, kExperts + 1));
  }
}

// A lost node takes the experts that only its ranks hold; the next K is chosen for that loss.
TEST(PartialRiskTest, ExpectedLossCoversWholeNode) {
  const std::vector<StateUnit> units = small_units();
  const ComputePlacement placement = in_both_layers({{0, 1, 2}, {0, 1, 3}, {2, 3, 4}, {4, 5}});
  const auto expected = [&](std::vector<uint32_t> domains) {
    PartialCheckpoint partial(units, placement, {.k = 1, .survivors_continue = true});
    partial.set_domains(std::move(domains));
    ExpertStamps stamps(kGrid);
    std::vector<int64_t> routed(kGrid.size(), 10);
    std::vector<int64_t> updates(kGrid.size(), 1);
    partial.next(1, {routed, updates}, false, stamps);
    for (int64_t& tokens : routed) tokens += 10;
    EXPECT_TRUE(partial.roll_back(std::vector<uint32_t>{5}, stamps, routed, updates).ok());
    return partial.expected_loss(routed).plt_since;
  };
  // Lost per layer: with rank 3 expert 5; with node 0 experts 0 and 1; with node 1 experts 4 and 5.
  EXPECT_DOUBLE_EQ(expected({0, 0, 1, 1}), 2 * expected({}));
}

}  // namespace
}  // namespace moetrain
