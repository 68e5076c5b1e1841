#include "trainer/elastic/migration_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "trainer/elastic/next_placement.h"

namespace moetrain {
namespace {

using testing::ElementsAre;

TEST(MigrationPlanTest, SpreadsTheSendingOverTheHolders) {
  std::vector<MovingItem> items(4, {.bytes = 10, .holders = {0, 1}, .wanted = {2}});
  const MigrationPlan plan = plan_migration(items, 3, 1'000);
  ASSERT_EQ(plan.rounds.size(), 1u);
  std::map<uint32_t, int> sent;
  for (const Move& move : plan.rounds[0]) ++sent[move.from];
  EXPECT_EQ(sent[0], 2);
  EXPECT_EQ(sent[1], 2);
  EXPECT_EQ(plan.bytes, 40u);
}

TEST(MigrationPlanTest, UnheldWantedItemsAreLostOthersStay) {
  const std::vector<MovingItem> items = {{.bytes = 1, .holders = {}, .wanted = {0, 1}},
                                         {.bytes = 1, .holders = {0, 1}, .wanted = {0, 1}},
                                         {.bytes = 1, .holders = {}, .wanted = {}}};
  const MigrationPlan plan = plan_migration(items, 2, 10);
  EXPECT_THAT(plan.lost, ElementsAre(0));
  EXPECT_TRUE(plan.rounds.empty());
}

TEST(MigrationPlanTest, AnItemLargerThanTheBudgetGoesAlone) {
  const std::vector<MovingItem> items(3, {.bytes = 100, .holders = {0}, .wanted = {1}});
  const MigrationPlan plan = plan_migration(items, 2, 50);
  ASSERT_EQ(plan.rounds.size(), 3u);
  for (const auto& round : plan.rounds) EXPECT_EQ(round.size(), 1u);
}

// Any plan, applied to sets, gives every rank the wanted items from holders, within the budget.
TEST(MigrationPlanProperty, EveryRankGetsWantedItemsWithinBudget) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 500; ++trial) {
    const uint32_t ranks = 1 + random() % 8;
    constexpr uint64_t kBudget = 64;
    std::vector<MovingItem> items(random() % 40);
    for (MovingItem& item : items) {
      item.bytes = 1 + random() % 32;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        if (random() % 3 == 0) item.holders.push_back(rank);
        if (random() % 3 == 0) item.wanted.push_back(rank);
      }
    }
    const MigrationPlan plan = plan_migration(items, ranks, kBudget);
    std::vector<std::set<uint32_t>> has(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      has[i] = {items[i].holders.begin(), items[i].holders.end()};
    }
    for (const auto& round : plan.rounds) {
      std::map<uint32_t, uint64_t> sent;
      std::map<uint32_t, uint64_t> received;
      for (const Move& move : round) {
        EXPECT_TRUE(std::ranges::binary_search(items[move.item].holders, move.from));
        EXPECT_TRUE(has[move.item].insert(move.to).second) << "it had it";
        sent[move.from] += items[move.item].bytes;
        received[move.to] += items[move.item].bytes;
      }
      for (const auto& [rank, bytes] : sent) EXPECT_LE(bytes, kBudget);
      for (const auto& [rank, bytes] : received) EXPECT_LE(bytes, kBudget);
    }
    for (uint32_t i = 0; i < items.size(); ++i) {
      const bool lost = std::ranges::binary_search(plan.lost, i);
      EXPECT_EQ(lost, items[i].holders.empty() && !items[i].wanted.empty());
      if (lost) continue;
      for (const uint32_t rank : items[i].wanted) EXPECT_TRUE(has[i].contains(rank));
    }
  }
}

TEST(KeepInPlaceTest, SurvivorsKeepTheirExperts) {
  const ComputePlacement wanted = *static_placement(2, 6, 3);
  // Rank 0 held the experts that rank 2 is planned to hold, and so on; no expert has to migrate.
  std::vector<std::vector<bool>> held(3, std::vector<bool>(12));
  for (uint32_t rank = 0; rank < 3; ++rank) {
    for (uint32_t layer = 0; layer < 2; ++layer) {
      for (const uint32_t expert : wanted.slots[layer][(rank + 2) % 3]) {
        held[rank][layer * 6 + expert] = true;
      }
    }
  }
  const ComputePlacement kept = keep_in_place(wanted, held, wanted.ranks);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    for (uint32_t layer = 0; layer < 2; ++layer) {
      EXPECT_EQ(kept.slots[layer][rank], wanted.slots[layer][(rank + 2) % 3]);
    }
  }
  EXPECT_TRUE(validate(kept).ok());
}

// Static replicas are kept as far as the slots of the remaining ranks suffice.
TEST(NextPlacementTest, StaticKeepsReplicasWhileSlotsSuffice) {
  ModelConfig shape;
  shape.layers = 2;
  shape.experts = 8;
  const PlacementOptions everything{.policy = PolicyName::kStatic, .slots = 8};
  const PlacementOptions half{.policy = PolicyName::kStatic, .slots = 4};
  for (uint32_t ranks = 4; ranks > 0; --ranks) {
    const auto all = place_experts(everything, shape, ranks, {});
    ASSERT_TRUE(all.ok()) << all.error().message;
    EXPECT_EQ(effective_replicas(*all, ranks), ranks);
    const auto some = place_experts(half, shape, ranks, {});
    ASSERT_TRUE(some.ok()) << some.error().message;
    EXPECT_EQ(effective_replicas(*some, ranks), std::max(ranks / 2, 1u)) << ranks;
  }
}

TEST(NextPlacementTest, SlotsGrowUpToLimit) {
  ModelConfig shape;
  shape.layers = 2;
  shape.experts = 8;
  for (const PolicyName policy : {PolicyName::kStatic, PolicyName::kLazarus}) {
    for (const uint32_t slots : {0u, 3u}) {
      SCOPED_TRACE(fmt::format("{} {}", policy_name(policy), slots));
      PlacementOptions choice{.policy = policy, .slots = slots, .slots_max = 4};
      for (const uint32_t ranks : {4u, 3u, 2u}) {
        const auto placement = place_experts(choice, shape, ranks, {});
        ASSERT_TRUE(placement.ok()) << placement.error().message;
        EXPECT_TRUE(validate(*placement).ok());
        for (const LayerSlots& layer : placement->slots) {
          for (const auto& held : layer) EXPECT_LE(held.size(), 4u) << ranks;
        }
      }
      const auto none = place_experts(choice, shape, 1, {});
      ASSERT_FALSE(none.ok());
      EXPECT_EQ(none.error().code, ckpt::ErrorCode::kResourceExhausted);
      choice.slots_max = 0;
      EXPECT_TRUE(place_experts(choice, shape, 1, {}).ok()) << "no limit";
    }
  }
}

TEST(NextPlacementTest, RemainingRanksKeepTheirExperts) {
  ModelConfig shape;
  shape.layers = 2;
  shape.experts = 6;
  const ComputePlacement wanted = *static_placement(2, 6, 3);
  // Rank 1 leaves. The survivors hold what three ranks are planned to hold, in another order.
  const std::vector<bool> stays = {true, false, true, true};
  const std::vector<uint32_t> holds = {2, 0, 0, 1};
  std::vector<std::vector<bool>> held(4, std::vector<bool>(12));
  for (uint32_t rank = 0; rank < 4; ++rank) {
    for (uint32_t layer = 0; layer < 2; ++layer) {
      for (const uint32_t expert : wanted.slots[layer][holds[rank]]) {
        held[rank][layer * 6 + expert] = true;
      }
    }
  }
  const auto next = next_placement({}, shape, 4, stays, {}, held);
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(next->ranks, 4u);
  for (uint32_t layer = 0; layer < 2; ++layer) {
    EXPECT_TRUE(next->slots[layer][1].empty());
    for (const uint32_t rank : {0u, 2u, 3u}) {
      EXPECT_EQ(next->slots[layer][rank], wanted.slots[layer][holds[rank]]) << rank;
    }
  }
}

// Ranks 0 and 2 are on one node, 1 and 3 on another. Both nodes have replicas, before and after.
TEST(NextPlacementTest, ReplicasAreOnDistinctNodes) {
  ModelConfig shape;
  shape.layers = 2;
  shape.experts = 8;
  const RankGroup group(4, {0, 1, 0, 1});
  for (const PolicyName policy : {PolicyName::kLazarus, PolicyName::kFrontier}) {
    SCOPED_TRACE(policy_name(policy));
    const PlacementOptions choice{.policy = policy, .slots = 4, .replicas_min = 2};
    const auto first = place_experts(choice, shape, group, {});
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_EQ(effective_replicas(*first, group), 2u);
    const std::vector<std::vector<bool>> nothing(4, std::vector<bool>(16));
    const auto next = next_placement(choice, shape, group, {}, {}, nothing);
    ASSERT_TRUE(next.ok()) << next.error().message;
    EXPECT_EQ(effective_replicas(*next, group), 2u);
  }
}

// Two nodes cannot hold three replicas, nor one node two: the plan has as many as possible.
TEST(NextPlacementTest, ReplicasAreAsManyAsNodesAllow) {
  ModelConfig shape;
  shape.layers = 2;
  shape.experts = 4;
  const PlacementOptions choice{.policy = PolicyName::kLazarus, .slots = 4, .replicas_min = 3};
  const RankGroup two(4, {0, 0, 1, 1});
  const auto on_two = place_experts(choice, shape, two, {});
  ASSERT_TRUE(on_two.ok()) << on_two.error().message;
  EXPECT_EQ(effective_replicas(*on_two, two), 2u);
  const RankGroup one(4, {0, 0, 0, 0});
  const auto on_one = place_experts(choice, shape, one, {});
  ASSERT_TRUE(on_one.ok()) << on_one.error().message;
  EXPECT_EQ(effective_replicas(*on_one, one), 1u);
  // Small nodes run out of slots: a node of one rank holds two experts.
  const RankGroup uneven(4, {0, 0, 0, 1});
  const PlacementOptions few{.policy = PolicyName::kLazarus, .slots = 2, .replicas_min = 2};
  const auto narrow = place_experts(few, shape, uneven, {});
  ASSERT_TRUE(narrow.ok()) << narrow.error().message;
  EXPECT_EQ(effective_replicas(*narrow, uneven), 1u);
  EXPECT_FALSE(plan_experts(few, shape, uneven, {}).ok()) << "at the start it is an error";
}

// Two nodes with two ranks each lose one rank each: two failure domains remain.
TEST(NextPlacementTest, ReplicasSpanDomainsOfRemainingRanks) {
  ModelConfig shape;
  shape.layers = 2;
  shape.experts = 4;
  const PlacementOptions choice{.policy = PolicyName::kLazarus, .slots = 4, .replicas_min = 2};
  const RankGroup group(4, {0, 0, 1, 1});
  const std::vector<std::vector<bool>> nothing(4, std::vector<bool>(8));
  const auto next = next_placement(choice, shape, group, {false, true, true, false}, {}, nothing);
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(effective_replicas(*next, group), 2u);
  EXPECT_TRUE(next->slots[0][0].empty());
}

// FlexMoE migrates nothing if loads are even.
TEST(NextPlacementTest, FlexmoeStartsFromHeldExperts) {
  ModelConfig shape;
  shape.layers = 2;
  shape.experts = 4;
  std::vector<std::vector<bool>> held(3, std::vector<bool>(8));
  for (uint32_t i = 0; i < 8; ++i) held[i % 4 == 0 || i % 4 == 3 ? 0 : 2][i] = true;
  const PlacementOptions choice{.policy = PolicyName::kFlexmoe, .slots = 2};
  const std::vector<int64_t> routed(8, 100);
  const auto next = next_placement(choice, shape, 3, {true, false, true}, routed, held);
  ASSERT_TRUE(next.ok()) << next.error().message;
  for (uint32_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(next->slots[layer], (LayerSlots{{0, 3}, {}, {1, 2}})) << layer;
  }
}

}  // namespace
}  // namespace moetrain
