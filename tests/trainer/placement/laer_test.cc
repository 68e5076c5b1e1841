// laer: its plans equal those of the reference algorithm, its costs those of routed tokens.
#include "trainer/placement/laer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/trainer/placement/laer_reference.h"
#include "trainer/placement/judge.h"
#include "trainer/placement/laer_counts.h"
#include "trainer/placement/token_shares.h"

namespace moetrain {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

// Ranks on 1 to 4 nodes, which may be of different sizes and need not be blocks.
NodeGroups random_nodes(uint32_t ranks, std::mt19937& random) {
  const uint32_t nodes = 1 + static_cast<uint32_t>(random() % std::min(ranks, 4u));
  if (ranks % nodes == 0 && random() % 2 == 0) return NodeGroups::even(ranks, nodes);
  std::vector<uint32_t> node_of_rank;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    node_of_rank.push_back(rank < nodes ? rank : static_cast<uint32_t>(random() % nodes));
  }
  std::shuffle(node_of_rank.begin(), node_of_rank.end(), random);
  return NodeGroups(node_of_rank);
}

std::vector<uint64_t> random_loads(uint32_t experts, std::mt19937& random) {
  std::vector<uint64_t> loads(experts);
  const double exponent = static_cast<double>(random() % 20) / 10;
  for (uint32_t e = 0; e < experts; ++e) {
    loads[e] = static_cast<uint64_t>(1e5 / std::pow(e + 1, exponent));
    if (random() % 4 == 0) loads[e] = random() % 3;  // ties, and none
  }
  loads[random() % experts] += 1;
  std::shuffle(loads.begin(), loads.end(), random);
  return loads;
}

TEST(LaerTest, EqualsReferenceAlgorithm) {
  std::mt19937 random(7);
  for (int round = 0; round < 4'000; ++round) {
    const uint32_t ranks = 1 + random() % 12;
    const uint32_t experts = 1 + random() % 24;
    const uint32_t slots = (experts + ranks - 1) / ranks + random() % 6;
    const NodeGroups nodes = random_nodes(ranks, random);
    const LaerCosts costs{.within_node = 0.02, .between_nodes = 0.3};
    for (const LaerScheme scheme : {LaerScheme::kPublished, LaerScheme::kLite}) {
      LaerPlanner planner(nodes, slots, experts, scheme, costs);
      for (int layer = 0; layer < 2; ++layer) {
        const std::vector<uint64_t> loads = random_loads(experts, random);
        const LayerSlots planned = planner.plan(loads);
        ASSERT_EQ(planned, reference::plan({nodes, slots, loads}, scheme, costs))
            << ranks << " ranks on " << nodes.nodes() << " nodes, " << slots << " slots, "
            << experts << " experts, round " << round;
        EXPECT_THAT(planned, Each(SizeIs(slots)));
        EXPECT_TRUE(check_covers(planned, experts).ok());
      }
    }
  }
}

TEST(LaerTest, CountsByLoadEqualReference) {
  std::mt19937 random(8);
  for (int round = 0; round < 500; ++round) {
    const uint32_t experts = 1 + random() % 40;
    const uint32_t ranks = 1 + random() % 200;
    const NodeGroups nodes = NodeGroups::even(ranks, 1);
    const uint32_t slots = std::max((experts + ranks - 1) / ranks, 1 + experts / 3);
    const std::vector<uint64_t> loads = random_loads(experts, random);
    const uint32_t most = random() % 2 == 0 ? ranks : ranks * slots;
    if (most * experts < ranks * slots) continue;
    ASSERT_EQ(counts_by_load(loads, ranks * slots, most),
              reference::counts({nodes, slots, loads}, 1, false, most));
  }
}

TEST(LaerTest, ReplicaCountsMatchHandComputedExamples) {
  const std::vector<uint64_t> loads = {800, 100, 60, 40};
  EXPECT_THAT(counts_by_load(loads, 12, 12), ElementsAre(9, 1, 1, 1));
  EXPECT_THAT(counts_by_load(loads, 12, 4), ElementsAre(4, 4, 2, 2));
  EXPECT_THAT(counts_by_rounds(loads, 12, 2, 1, 12), ElementsAre(8, 2, 1, 1));
  EXPECT_THAT(counts_by_rounds(loads, 12, 2, 2, 12), ElementsAre(6, 2, 2, 2));
  EXPECT_THAT(counts_by_rounds(loads, 11, 2, 1, 12), ElementsAre(8, 1, 1, 1));
  EXPECT_THAT(even_counts(11, 4), ElementsAre(3, 3, 3, 2));
}

// Token by token: from every rank of a node to the node's replicas in turn, or to all of them.
TEST(LaerTest, CostMatchesTokenByTokenRouting) {
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
  EXPECT_NEAR(laer_cost(slots, loads, NodeGroups::even(4, 2), costs),
              4 * communication + 4 * *std::max_element(computed.begin(), computed.end()), 1e-6);
}

// The tokens of a layer, spread evenly over the ranks and routed: the most that a rank computes,
// and the most that one receives, weighed.
LaerPlacer::Expected routed(const LayerSlots& slots, const std::vector<uint64_t>& loads,
                            const NodeGroups& nodes, const LaerCosts& costs) {
  std::vector<uint32_t> node_of_rank;
  for (uint32_t rank = 0; rank < nodes.ranks(); ++rank) node_of_rank.push_back(nodes.node(rank));
  std::vector<double> computed(nodes.ranks());
  std::vector<double> received(nodes.ranks());
  for (uint32_t expert = 0; expert < loads.size(); ++expert) {
    std::vector<uint32_t> slot_ranks;
    for (uint32_t rank = 0; rank < nodes.ranks(); ++rank) {
      for (const uint32_t held : slots[rank]) {
        if (held == expert) slot_ranks.push_back(rank);
      }
    }
    const std::vector<int64_t> tokens(nodes.ranks(),
                                      static_cast<int64_t>(loads[expert] / nodes.ranks()));
    const auto shares = share_tokens_by_node(tokens, slot_ranks, node_of_rank, expert);
    for (uint32_t source = 0; source < nodes.ranks(); ++source) {
      for (size_t slot = 0; slot < slot_ranks.size(); ++slot) {
        const uint32_t rank = slot_ranks[slot];
        const auto sent = static_cast<double>(shares[source * slot_ranks.size() + slot]);
        computed[rank] += sent;
        if (rank == source) continue;
        received[rank] += sent * (nodes.node(rank) == nodes.node(source) ? costs.within_node
                                                                         : costs.between_nodes);
      }
    }
  }
  return {std::ranges::max(computed), std::ranges::max(received)};
}

TEST(LaerTest, EstimateMatchesLiteRouting) {
  std::mt19937 random(9);
  const LaerCosts costs{.within_node = 0.5, .between_nodes = 2};
  for (int round = 0; round < 500; ++round) {
    const uint32_t ranks = 1 + random() % 9;
    const uint32_t experts = 1 + random() % 10;
    const uint32_t slots = (experts + ranks - 1) / ranks + random() % 4;
    const NodeGroups nodes = random_nodes(ranks, random);
    std::vector<uint64_t> loads = random_loads(experts, random);
    for (uint64_t& load : loads) load *= ranks;  // whole tokens of each rank
    LaerPlacer placer(nodes, slots, experts);
    placer.place(loads, counts_by_load(loads, ranks * slots, ranks * slots),
                 LaerPlacer::Rule::kLite);
    const LaerPlacer::Expected expected = placer.expected(costs);
    const LaerPlacer::Expected measured = routed(placer.slots(), loads, nodes, costs);
    // A slot's tokens are rounded twice.
    EXPECT_NEAR(expected.computed_max, measured.computed_max, 2.0 * slots);
    EXPECT_NEAR(expected.received_max, measured.received_max, 2 * 2.0 * slots);
  }
}

TEST(LaerTest, PutsReplicasOnDifferentNodesFirst) {
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

// One replica on each node fills all slots: the published scheme has no slot left for balancing.
TEST(LaerTest, LiteSchemeBalancesWithoutSpareSlots) {
  PlacementRequest request{.loads = {{}}, .ranks = 8, .slots_per_rank = 8};
  request.nodes = 2;
  for (uint32_t e = 0; e < 32; ++e) {
    request.loads[0].push_back(static_cast<uint64_t>(1e6 / std::pow(e + 1, 1.2)));
  }
  const NodeGroups nodes = NodeGroups::even(8, 2);
  const auto max_over_mean = [&](LaerScheme scheme) {
    const auto layers = plan_laer(request, scheme);
    const auto all = static_cast<double>(
        std::accumulate(request.loads[0].begin(), request.loads[0].end(), uint64_t{0}));
    return routed(layers[0], request.loads[0], nodes, {}).computed_max / (all / 8);
  };
  EXPECT_GT(max_over_mean(LaerScheme::kPublished), 1.4);
  EXPECT_LT(max_over_mean(LaerScheme::kLite), 1.05);
}

// Even counts leave the hot expert with one replica more than the others at most.
TEST(LaerTest, CandidateSetLimitsReplicaCounts) {
  PlacementRequest request{.loads = {{800, 100, 100, 100}}, .ranks = 4, .slots_per_rank = 2};
  const auto replicas_of_first = [&](LaerScheme scheme, LaerCandidates candidates) {
    const auto layers = plan_laer(request, scheme, {}, candidates);
    uint32_t replicas = 0;
    for (const auto& held : layers[0]) replicas += std::ranges::count(held, 0u);
    return replicas;
  };
  for (const LaerScheme scheme : {LaerScheme::kPublished, LaerScheme::kLite}) {
    EXPECT_EQ(replicas_of_first(scheme, LaerCandidates::kEven), 2u);
    EXPECT_GT(replicas_of_first(scheme, LaerCandidates::kByLoad), 2u);
    EXPECT_GT(replicas_of_first(scheme, LaerCandidates::kAll), 2u);
  }
}

}  // namespace
}  // namespace moetrain
