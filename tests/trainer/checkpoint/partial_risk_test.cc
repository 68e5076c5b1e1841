// Which experts are saved where some are less likely to be lost than others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/partial_history.h"

namespace moetrain {
namespace {

using testing::ElementsAre;

// Two snapshots: a full one, and one after these tokens to the experts of each layer.
PartialCheckpoint::Plan second_snapshot(PartialCheckpoint& partial,
                                        const std::vector<int64_t>& tokens) {
  ExpertStamps stamps(kGrid);
  std::vector<int64_t> routed(kGrid.size());
  const std::vector<int64_t> updates(kGrid.size(), 1);
  partial.next(1, {routed, updates}, false, stamps);
  for (size_t i = 0; i < kGrid.size(); ++i) routed[i] = tokens[i % kExperts];
  return partial.next(2, {routed, updates}, false, stamps);
}

ExpertPlacement in_both_layers(const LayerSlots& slots) {
  return {
      .ranks = static_cast<uint32_t>(slots.size()), .experts = kExperts, .slots = {kLayers, slots}};
}

// Expert 0 has most tokens, and is on all four ranks: memory is for those that a loss takes sooner.
TEST(PartialRiskTest, MemoryIsForThoseWithOneHolder) {
  const std::vector<StateUnit> units = small_units();
  const ExpertPlacement placement = in_both_layers({{0, 1, 3}, {0, 2, 3}, {0, 4, 5}, {0, 4, 5}});
  const std::vector<int64_t> tokens = {50, 13, 12, 1, 1, 1};
  PartialOptions options{.k = 1, .k_snapshot = 2, .survivors_go_on = true};
  PartialCheckpoint going_on(units, placement, options);
  const auto plan = second_snapshot(going_on, tokens);
  EXPECT_THAT(plan.experts, ElementsAre(1, kExperts + 1));
  EXPECT_THAT(plan.memory_experts, ElementsAre(2, kExperts + 2));
  // Where all rewind there is one risk for all.
  options.survivors_go_on = false;
  PartialCheckpoint rewinding(units, placement, options);
  const auto other = second_snapshot(rewinding, tokens);
  EXPECT_THAT(other.experts, ElementsAre(0, kExperts));
  EXPECT_THAT(other.memory_experts, ElementsAre(1, kExperts + 1));
}

}  // namespace
}  // namespace moetrain
