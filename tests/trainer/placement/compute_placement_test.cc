// ComputePlacement, the value that holds the placement of experts, and its queries.
#include "trainer/placement/compute_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(StaticPlacement, CutsExpertsIntoBalancedBlocks) {
  const auto placement = static_placement(2, 8, 3);
  ASSERT_TRUE(placement.ok());
  EXPECT_TRUE(validate(*placement).ok());
  EXPECT_EQ(placement->slots[1],
            (std::vector<std::vector<uint32_t>>{{0, 1}, {2, 3, 4}, {5, 6, 7}}));
  for (uint32_t experts = 1; experts <= 12; ++experts) {
    for (uint32_t ranks = 1; ranks <= experts; ++ranks) {
      const auto any = static_placement(1, experts, ranks);
      ASSERT_TRUE(any.ok());
      EXPECT_TRUE(validate(*any).ok());
      for (const auto& slots : any->slots[0]) {
        EXPECT_GE(slots.size(), experts / ranks);
        EXPECT_LE(slots.size(), (experts + ranks - 1) / ranks);
      }
    }
  }
}

TEST(StaticPlacement, RefusesMoreRanksThanExperts) {
  const auto placement = static_placement(1, 4, 5);
  ASSERT_FALSE(placement.ok());
  EXPECT_EQ(placement.error().code, ckpt::ErrorCode::kInvalidArgument);
  EXPECT_THAT(placement.error().message, HasSubstr("5 ranks for 4 experts"));
  EXPECT_FALSE(static_placement(1, 4, 0).ok());
}

// Layer 0: expert 1 on two ranks, expert 2 twice on rank 1. Layer 1: no expert twice.
ComputePlacement replicated() {
  return {.ranks = 3, .experts = 3, .slots = {{{1, 0}, {2, 2}, {1}}, {{2}, {0, 1}, {}}}};
}

TEST(PlacementCheck, AcceptsReplicasAndRanksWithoutExperts) {
  EXPECT_TRUE(validate(replicated()).ok());
  EXPECT_TRUE(has_replicas(replicated()));
  EXPECT_FALSE(has_replicas(*static_placement(2, 4, 2)));
  // Two slots of one rank are one state.
  EXPECT_FALSE(has_replicas({.ranks = 2, .experts = 2, .slots = {{{0, 0}, {1}}}}));
}

TEST(PlacementCheck, RefusesWrongNumberOfNodes) {
  ComputePlacement placement = *static_placement(2, 4, 2);
  placement.node_of_rank = {0, 7};
  EXPECT_TRUE(validate(placement).ok());
  placement.node_of_rank = {0};
  EXPECT_EQ(validate(placement).error().message, "placement: nodes of 1 ranks, the group has 2");
  EXPECT_FALSE(make_placement(placement.slots, 4, 2, {0, 1, 1}).ok());
}

TEST(PlacementCheck, NamesMissingExpert) {
  ComputePlacement placement = *static_placement(2, 4, 2);
  placement.slots[1][0] = {0, 2};
  EXPECT_THAT(validate(placement).error().message, HasSubstr("layer 1"));
  EXPECT_THAT(validate(placement).error().message, HasSubstr("no rank holds expert 1"));
  EXPECT_FALSE(make_placement(placement.slots, 4, 2).ok());
  placement.slots[1][0] = {0, 9};
  EXPECT_THAT(validate(placement).error().message, HasSubstr("expert 9"));
  placement.slots[1].pop_back();
  EXPECT_THAT(validate(placement).error().message, HasSubstr("slots for 1 ranks"));
}

TEST(PlacementQueries, NameHoldersSlotsAndExperts) {
  const ComputePlacement placement = replicated();
  EXPECT_THAT(slots_of_experts(placement, 0)[1], ElementsAre(SlotAddress{0, 0}, SlotAddress{2, 0}));
  EXPECT_THAT(slots_of_experts(placement, 0)[2], ElementsAre(SlotAddress{1, 0}, SlotAddress{1, 1}));
  EXPECT_THAT(holders_of_experts(placement, 0),
              ElementsAre(ElementsAre(0), ElementsAre(0, 2), ElementsAre(1)));
  EXPECT_THAT(experts_of_rank(placement, 0, 0), ElementsAre(0, 1));
  EXPECT_THAT(experts_of_rank(placement, 0, 1), ElementsAre(2));
  EXPECT_THAT(experts_of_rank(placement, 1, 2), ElementsAre());
}

// Compares the queries with a naive computation, slot by slot.
TEST(PlacementQueries, AgreeOnRandomPlacements) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    const auto ranks = static_cast<uint32_t>(1 + random() % 5);
    const auto experts = static_cast<uint32_t>(1 + random() % 6);
    LayerSlots slots(ranks);
    for (uint32_t e = 0; e < experts; ++e) slots[random() % ranks].push_back(e);
    for (auto& held : slots) {
      for (uint64_t more = random() % 4; more > 0; --more) {
        held.push_back(static_cast<uint32_t>(random() % experts));
      }
    }
    const auto placement = make_placement({slots}, experts, ranks);
    ASSERT_TRUE(placement.ok()) << placement.error().message;
    const auto holding = holders_of_experts(*placement, 0);
    const auto addresses = slots_of_experts(*placement, 0);
    size_t counted = 0;
    for (uint32_t e = 0; e < experts; ++e) {
      for (const SlotAddress& at : addresses[e]) {
        EXPECT_EQ(slots[at.rank][at.slot], e);
        EXPECT_THAT(holding[e], testing::Contains(at.rank));
        EXPECT_THAT(experts_of_rank(*placement, 0, at.rank), testing::Contains(e));
        ++counted;
      }
    }
    size_t all = 0;
    for (const auto& held : slots) all += held.size();
    EXPECT_EQ(counted, all);
  }
}

}  // namespace
}  // namespace moetrain
