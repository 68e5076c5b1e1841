#include "trainer/simulate/groups.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "tests/trainer/simulate/cluster.h"

namespace simtest {
namespace {

// Two nodes, one layer of two experts each.
std::shared_ptr<const Plan> plan_of(std::vector<std::vector<uint32_t>> held, uint32_t experts) {
  auto plan = std::make_shared<Plan>();
  plan->nodes = static_cast<uint32_t>(held.size());
  plan->ranks = plan->nodes;
  plan->holders.resize(experts);
  for (uint32_t node = 0; node < plan->nodes; ++node) {
    for (const uint32_t expert : held[node]) plan->holders[expert].push_back(node);
  }
  plan->layers = {held};
  plan->held = std::move(held);
  return plan;
}

Cluster cluster_of(uint32_t nodes) {
  Cluster cluster(nodes);
  for (uint32_t node = 0; node < nodes; ++node) cluster.add(node);
  return cluster;
}

Groups first(const CostModel& model, const Plans& plans, const Cluster& cluster) {
  return regroup(model, {}, plans, cluster).groups;
}

TEST(Groups, ExpertsWithoutHolderAreLost) {
  const CostModel model = plain_model();
  const auto plan = plan_of({{0, 1}, {1, 2}, {2, 3}}, 4);
  Cluster cluster = cluster_of(6);
  const Groups one = first(model, {plan}, cluster_of(3));
  const Groups two = first(model, {plan, plan}, cluster);
  cluster.remove(0);
  EXPECT_EQ(lost_experts(one, cluster), (std::vector<uint32_t>{0}));
  EXPECT_TRUE(lost_experts(two, cluster).empty());
  cluster.remove(1);
  EXPECT_EQ(lost_experts(one, cluster), (std::vector<uint32_t>{0, 1}));
  cluster.remove(3);
  EXPECT_EQ(lost_experts(two, cluster), (std::vector<uint32_t>{0}));
  // A node that is back has nothing.
  cluster.add(0);
  EXPECT_EQ(lost_experts(one, cluster), (std::vector<uint32_t>{0, 1}));
  EXPECT_TRUE(any_alive(one, cluster));
  cluster.remove(2);
  EXPECT_FALSE(any_alive(one, cluster));
}

TEST(Groups, NodesTakePositionOfTheirExperts) {
  const CostModel model = plain_model();  // 100 bytes an expert, 1,000 of dense state
  const Cluster cluster = cluster_of(3);
  const Groups before = first(model, {plan_of({{0, 1}, {1, 2}, {2, 3}}, 4)}, cluster);
  const Regrouped after = regroup(model, before, {plan_of({{2, 3}, {0, 1}, {0, 2}}, 4)}, cluster);
  const std::vector<NodeLife>& nodes = after.groups[0].nodes;
  EXPECT_EQ(nodes[0].node, 2U);
  EXPECT_EQ(nodes[1].node, 0U);
  EXPECT_EQ(nodes[2].node, 1U);  // holds expert 2, lacks 0
  EXPECT_EQ(after.moved_bytes, 100);
  // The same plan again: nothing moves.
  EXPECT_EQ(regroup(model, before, {before[0].plan}, cluster).moved_bytes, 0);
  // A new node needs all state that it will hold.
  Cluster changed = cluster;
  changed.remove(1);
  changed.add(1);
  EXPECT_EQ(regroup(model, before, {before[0].plan}, changed).moved_bytes, 1000 + 200);
}

// Sorts all pairs of node and position; pairing by pairs must give the same result.
std::vector<uint32_t> best_pairs_first(const Plan& plan, const std::vector<uint32_t>& nodes,
                                       const std::map<uint32_t, std::set<uint32_t>>& held) {
  std::vector<std::tuple<int, uint32_t, uint32_t>> pairs;
  for (uint32_t candidate = 0; candidate < nodes.size(); ++candidate) {
    for (uint32_t position = 0; position < plan.nodes; ++position) {
      const auto mine = held.find(nodes[candidate]);
      const auto common = std::ranges::count_if(plan.held[position], [&](uint32_t expert) {
        return mine != held.end() && mine->second.contains(expert);
      });
      pairs.emplace_back(-common, candidate, position);
    }
  }
  std::ranges::sort(pairs);
  std::map<uint32_t, uint32_t> of_position;
  std::set<uint32_t> used;
  for (const auto& [overlap, candidate, position] : pairs) {
    if (used.contains(candidate) || of_position.contains(position)) continue;
    used.insert(candidate);
    of_position[position] = nodes[candidate];
  }
  std::vector<uint32_t> matched;
  for (const auto& [position, node] : of_position) matched.push_back(node);
  return matched;
}

TEST(Groups, BestPairIsMatchedFirst) {
  const CostModel model = plain_model();
  std::mt19937 random(5);
  int moved = 0;
  for (int round = 0; round < 60; ++round) {
    const uint32_t nodes = 2 + random() % 90;
    const uint32_t experts = 3 + random() % 30;
    // Few kinds of contents, or all different ones.
    const uint32_t kinds = round % 2 == 0 ? 3 : nodes;
    std::vector<std::vector<uint32_t>> contents(kinds);
    for (std::vector<uint32_t>& one : contents) {
      for (uint32_t expert = 0; expert < experts; ++expert) {
        if (random() % 3 == 0) one.push_back(expert);
      }
    }
    const auto any_plan = [&](uint32_t positions) {
      std::vector<std::vector<uint32_t>> held(positions);
      for (auto& position : held) position = contents[random() % kinds];
      return plan_of(held, experts);
    };
    Cluster cluster = cluster_of(nodes);
    const Groups before = first(model, {any_plan(nodes)}, cluster);
    const uint32_t lost = random() % (nodes / 2 + 1);
    for (uint32_t i = 0; i < lost; ++i) cluster.remove(cluster.list[random() % (nodes - i)]);
    for (uint32_t i = 0; i < lost / 2; ++i) {  // back, with nothing
      const auto gone = std::ranges::find(cluster.there, false) - cluster.there.begin();
      cluster.add(static_cast<uint32_t>(gone));
    }
    const auto plan = any_plan(static_cast<uint32_t>(cluster.list.size()));
    const Regrouped after = regroup(model, before, {plan}, cluster);
    std::map<uint32_t, std::set<uint32_t>> held;
    for (uint32_t position = 0; position < nodes; ++position) {
      const NodeLife& node = before[0].nodes[position];
      if (!cluster.has(node)) continue;
      const std::vector<uint32_t>& experts_held = before[0].plan->held[position];
      held[node.node] = {};
      held[node.node].insert(experts_held.begin(), experts_held.end());
    }
    std::vector<uint32_t> candidates = cluster.list;  // staying nodes first
    std::ranges::stable_partition(candidates, [&](uint32_t node) { return held.contains(node); });
    const std::vector<uint32_t> expected = best_pairs_first(*plan, candidates, held);
    ASSERT_EQ(after.groups[0].nodes.size(), expected.size());
    for (size_t position = 0; position < expected.size(); ++position) {
      EXPECT_EQ(after.groups[0].nodes[position].node, expected[position])
          << "round " << round << ", position " << position;
      moved += expected[position] != position ? 1 : 0;
    }
  }
  EXPECT_GT(moved, 100);
}

TEST(Groups, LossChangesOnlyOneGroup) {
  Cluster cluster = cluster_of(12);
  const auto sizes = elastic_sizes({}, cluster, 4, 2);
  EXPECT_EQ(sizes, (std::vector<uint32_t>{4, 4, 4}));
  const auto plan = plan_of({{0}, {1}, {0}, {1}}, 2);
  const Groups groups = first(plain_model(), {plan, plan, plan}, cluster);
  cluster.remove(5);
  EXPECT_EQ(elastic_sizes(groups, cluster, 4, 2), (std::vector<uint32_t>{4, 3, 4}));
  cluster.add(5);
  EXPECT_EQ(elastic_sizes(groups, cluster, 4, 2), (std::vector<uint32_t>{4, 4, 4}));
  // Too small a group is dissolved; too few nodes for two are one.
  for (const uint32_t node : {4U, 6U, 7U}) cluster.remove(node);
  EXPECT_EQ(elastic_sizes(groups, cluster, 4, 2), (std::vector<uint32_t>{3, 3, 3}));
  EXPECT_EQ(elastic_sizes(groups, cluster, 4, 5), (std::vector<uint32_t>{9}));
  EXPECT_EQ(elastic_sizes(groups, cluster, 0, 2), (std::vector<uint32_t>{9}));
}

// Invariant after any change: each position has its own living node, and sizes sum to the nodes.
TEST(Groups, RandomChangesKeepNodesDistinct) {
  const CostModel model = plain_model();
  const LoadModel load = LoadModel::zipf(model);
  Planner planner(model, load);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    uint64_t state = seed * 77 + 1;
    const auto below = [&](uint64_t bound) {
      state = state * 6364136223846793005 + 1442695040888963407;
      return static_cast<uint32_t>((state >> 33) % bound);
    };
    Cluster cluster = cluster_of(16);
    Groups groups;
    for (int change = 0; change < 12; ++change) {
      const std::vector<uint32_t> sizes = elastic_sizes(groups, cluster, 5, 2);
      Plans plans;
      uint32_t total = 0;
      for (const uint32_t size : sizes) {
        auto plan = planner.elastic(moetrain::PolicyName::kLazarus, size, 0);
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        plans.push_back(*plan);
        total += size;
      }
      ASSERT_EQ(total, cluster.list.size());
      groups = regroup(model, groups, plans, cluster).groups;
      std::set<uint32_t> used;
      for (const Group& group : groups) {
        for (const NodeLife& node : group.nodes) {
          EXPECT_TRUE(cluster.has(node));
          EXPECT_TRUE(used.insert(node.node).second);
        }
      }
      EXPECT_EQ(used.size(), total);
      for (uint32_t i = 0; i < 3; ++i) {
        const uint32_t node = below(16);
        if (!cluster.there[node]) {
          cluster.add(node);
        } else if (cluster.list.size() > 3) {
          cluster.remove(node);
        }
      }
    }
  }
}

}  // namespace
}  // namespace simtest
