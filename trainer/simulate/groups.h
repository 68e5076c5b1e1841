// Groups: which node has which position of which placement. Pure; the engine keeps the time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/simulate/plan.h"

namespace moetrain::simulate {

// A node, and which of its lives: one that was lost and comes back has nothing of what it held.
struct NodeLife {
  uint32_t node = 0;
  uint32_t life = 0;
  bool operator==(const NodeLife&) const = default;
};

// Ranks that share a placement. [position] of the plan.
struct Group {
  std::vector<NodeLife> nodes;
  std::shared_ptr<const Plan> plan;
};
using Groups = std::vector<Group>;

// Nodes and lives that are there. The engine's; everything here only reads it.
struct Cluster {
  std::vector<bool> there;
  std::vector<uint32_t> lives;  // of each node so far
  std::vector<uint32_t> list;   // nodes that are there, ascending

  explicit Cluster(size_t nodes) : there(nodes), lives(nodes) {}
  void add(uint32_t node);
  void remove(uint32_t node);
  bool has(const NodeLife& node) const { return there[node.node] && lives[node.node] == node.life; }
};

// Experts (numbers in the grid) that none of `groups` holds any more. Empty without a loss.
std::vector<uint32_t> lost_experts(const Groups& groups, const Cluster& cluster);
// Is nobody of it lost?
bool whole(const Group& group, const Cluster& cluster);
// Is anybody left? Dense weights are everywhere.
bool any_alive(const Groups& groups, const Cluster& cluster);

struct Regrouped {
  Groups groups;
  std::vector<bool> member;  // [node]
  double moved_bytes = 0;    // that the node with the most of them has to get from others
};

using Plans = std::vector<std::shared_ptr<const Plan>>;  // one for each group

// Gives the nodes that are there to the positions of `plans`. Nodes stay in their group, and there
// take the position whose experts they hold most of (greedily, the best match first); who is not
// needed is left out. plans[g] goes on from groups[g]. The plans have no more positions together
// than there are nodes.
Regrouped regroup(const CostModel& model, const Groups& groups, const Plans& plans,
                  const Cluster& cluster);

// How many nodes every elastic group should have: as before less those lost, joiners to the
// smallest, so that a loss changes one group only. `group_nodes` 0: all in one. Groups too small to
// hold every expert (`nodes_min`) are dissolved.
std::vector<uint32_t> elastic_sizes(const Groups& groups, const Cluster& cluster,
                                    uint32_t group_nodes, uint32_t nodes_min);

}  // namespace moetrain::simulate
