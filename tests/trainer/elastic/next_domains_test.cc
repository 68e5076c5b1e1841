// Placements of groups that change, where ranks die together with their node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "trainer/elastic/migration_plan.h"
#include "trainer/elastic/next_placement.h"

namespace moetrain {
namespace {

using testing::UnorderedElementsAreArray;

using Held = std::vector<std::vector<bool>>;

ModelConfig grid_of(uint32_t layers, uint32_t experts) {
  ModelConfig shape;
  shape.layers = layers;
  shape.experts = experts;
  return shape;
}

Held random_held(std::mt19937& random, uint32_t ranks, uint32_t experts) {
  Held held(ranks, std::vector<bool>(experts));
  for (auto& rank : held) {
    for (size_t i = 0; i < rank.size(); ++i) rank[i] = random() % 2 == 0;
  }
  return held;
}

const PlacementOptions kTwice{.policy = PolicyName::kLazarus, .slots = 4, .replicas_min = 2};

// [domain]: the experts of each of its ranks.
using RanksOfDomain = std::vector<std::multiset<std::vector<uint32_t>>>;
RanksOfDomain by_domain(const ComputePlacement& placement, const RankGroup& group) {
  RanksOfDomain all(group.domains());
  for (uint32_t rank = 0; rank < placement.ranks; ++rank) {
    std::vector<uint32_t> experts;
    for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
      const auto of_layer = experts_of_rank(placement, layer, rank);
      experts.insert(experts.end(), of_layer.begin(), of_layer.end());
    }
    all[group.domain(rank)].insert(experts);
  }
  return all;
}

TEST(KeepInPlaceTest, ExpertsOfDomainStayTogether) {
  const uint32_t seed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const uint32_t ranks = 2 + random() % 7;
    std::vector<int64_t> nodes(ranks);
    for (int64_t& node : nodes) node = random() % 3;
    const RankGroup group(ranks, number_domains(nodes));
    const auto placement = place_experts(kTwice, grid_of(2, 6), group, {});
    ASSERT_TRUE(placement.ok()) << placement.error().message;
    const ComputePlacement kept = keep_in_place(*placement, random_held(random, ranks, 12), group);
    EXPECT_TRUE(validate(kept).ok());
    EXPECT_THAT(by_domain(kept, group), UnorderedElementsAreArray(by_domain(*placement, group)));
    EXPECT_EQ(effective_replicas(kept, group), effective_replicas(*placement, group));
  }
}

TEST(KeepInPlaceTest, DomainsSwapPlacesToAvoidMigration) {
  // Planned for ranks on nodes a, a, b, b. Node b holds the experts planned for a, in reverse
  // order.
  const ComputePlacement wanted = *static_placement(1, 4, 4);
  const std::vector<uint32_t> has = {2, 3, 1, 0};
  Held held(4, std::vector<bool>(4));
  for (uint32_t rank = 0; rank < 4; ++rank) held[rank][has[rank]] = true;
  const ComputePlacement kept = keep_in_place(wanted, held, RankGroup(4, {0, 0, 1, 1}));
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(kept.slots[0][rank], std::vector<uint32_t>{has[rank]}) << rank;
  }
}

// Keeping most experts in place would sometimes put both replicas on one node.
TEST(NextPlacementTest, ReplicasSpanNodesEvenIfExpertsMove) {
  const uint32_t seed = 3;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const RankGroup group(4, {0, 1, 1, 0});
  for (const PolicyName policy : {PolicyName::kLazarus, PolicyName::kFrontier}) {
    PlacementOptions choice = kTwice;
    choice.policy = policy;
    for (int round = 0; round < 50; ++round) {
      const Held held = random_held(random, 4, 16);
      const auto next = next_placement(choice, grid_of(2, 8), group, {}, {}, held);
      ASSERT_TRUE(next.ok()) << next.error().message;
      EXPECT_EQ(effective_replicas(*next, group), 2u) << policy_name(policy);
    }
  }
}

}  // namespace
}  // namespace moetrain
