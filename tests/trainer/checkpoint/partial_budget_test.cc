// Number of experts per snapshot, depending on the tokens lost so far.
#include <gtest/gtest.h>

#include <set>

#include "tests/trainer/checkpoint/partial_history.h"

namespace moetrain {
namespace {

// Experts of a rank, for placements with one rank per expert.
std::vector<uint32_t> experts_of(const History& history, uint32_t rank) {
  std::vector<uint32_t> experts;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (const uint32_t expert : experts_of_rank(history.placement(), layer, rank)) {
      experts.push_back(layer * kExperts + expert);
    }
  }
  return experts;
}

TEST(PartialBudgetTest, RecoveryBeyondBudgetRaisesK) {
  History history({.k = 1, .plt_budget = 0.01}, 5);
  history.snapshot(false, false);
  for (int i = 0; i < 6; ++i) {
    history.step();
    history.snapshot(false, false);
  }
  const auto loss = history.resume(6);
  ASSERT_TRUE(loss.ok()) << loss.error().message;
  EXPECT_GT(loss->plt, 0.01);
  EXPECT_EQ(history.partial().k(), kExperts);
  history.step();
  history.snapshot(false, false);
  ASSERT_TRUE(history.resume(7).ok());
  EXPECT_EQ(history.partial().k(), kExperts) << "it is kept with the run";
}

// One early loss is a large share of few tokens, and a small share of many.
TEST(PartialBudgetTest, KFallsAsLossShareShrinks) {
  History history({.k = 1, .plt_budget = 0.05}, 5);
  history.snapshot(false, false);
  for (int i = 0; i < 6; ++i) {
    history.step();
    history.snapshot(false, false);
  }
  ASSERT_TRUE(history.resume(6).ok());
  EXPECT_EQ(history.partial().k(), kExperts);
  std::set<uint32_t> ks;
  for (int i = 0; i < 300; ++i) {
    history.step();
    const uint32_t before = history.partial().k();
    const auto plan = history.snapshot(false, false);
    EXPECT_LE(history.partial().k(), before);
    EXPECT_GE(plan.experts.size(), size_t{history.partial().k()} * kLayers);
    ks.insert(history.partial().k());
  }
  EXPECT_EQ(ks, (std::set<uint32_t>{1, 2, 4, kExperts}));
  // The loss is part of the run's state: a lineage that resumes from here keeps it.
  ASSERT_TRUE(history.resume(history.now()).ok());
  EXPECT_LT(history.partial().plt(history.routed()), 0.05);
  EXPECT_GT(history.partial().state().loss_tokens, 0);
}

// The second loss comes right before a snapshot, after K has fallen for the first time since the
// first loss.
TEST(PartialBudgetTest, KFallLeavesBudgetForNextRollback) {
  constexpr double kBudget = 0.06;
  constexpr int kSeeds = 60;
  double spent = 0;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    History history({.k = 1, .plt_budget = kBudget, .survivors_continue = true}, seed);
    const auto interval = [&history] {
      history.snapshot(false, false);
      for (int step = 0; step < 4; ++step) history.step();
    };
    for (int i = 0; i < 10; ++i) interval();
    ASSERT_TRUE(history.roll_back(experts_of(history, seed % 3)).ok());
    ASSERT_EQ(history.partial().k(), kExperts);
    while (history.partial().k() == kExperts) interval();
    for (int i = 0; i < 2; ++i) interval();  // versions reach the largest age for this K
    ASSERT_TRUE(history.roll_back(experts_of(history, (seed + 1) % 3)).ok());
    spent += history.partial().plt(history.routed());
  }
  EXPECT_LT(spent / kSeeds, kBudget);
}

// The next lost rank is the only holder of four experts per layer; this rank was of three.
TEST(PartialBudgetTest, ExpectedLossGrowsAsGroupShrinks) {
  const std::vector<StateUnit> units = small_units();
  ComputePlacement placement = *static_placement(kLayers, kExperts, 2);
  const PartialOptions options{.k = 3, .plt_budget = 1, .survivors_continue = true};
  PartialCheckpoint partial(units, placement, options);
  ExpertStamps stamps(kGrid);
  std::vector<int64_t> routed(kGrid.size(), 10);
  std::vector<int64_t> updates(kGrid.size(), 1);
  (void)partial.next(1, {routed, updates}, true, stamps);
  const ExpertStamps saved = stamps;
  routed.assign(kGrid.size(), 20);
  const std::vector<uint32_t> lost = {0, 1, 2, 6, 7, 8};
  const auto loss = partial.roll_back(lost, saved, routed, updates);
  ASSERT_TRUE(loss.ok()) << loss.error().message;
  EXPECT_EQ(loss->tokens, 60);
  EXPECT_EQ(loss->since, 60);
  EXPECT_EQ(partial.state().loss_since, 60);
  EXPECT_EQ(partial.state().loss_experts, 6u);
  EXPECT_EQ(partial.state().loss_tokens, 0) << "no version was behind the snapshot";
  EXPECT_DOUBLE_EQ(partial.expected_loss(routed).plt_since, 60.0 / 240);
  placement = *static_placement(kLayers, kExperts, 1);
  EXPECT_DOUBLE_EQ(partial.expected_loss(routed).plt_since, 120.0 / 240);
}

}  // namespace
}  // namespace moetrain
