// Groups: the node at each position of each placement. Pure; the engine keeps the time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/simulate/plan.h"

namespace moetrain::simulate {

// A node in one of its lives: a node that was lost and comes back holds no state.
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

// The present nodes and their lives. Owned by the engine; all code here only reads it.
struct Cluster {
  std::vector<bool> there;
  std::vector<uint32_t> lives;  // of each node so far
  std::vector<uint32_t> list;   // nodes that are there, ascending

  explicit Cluster(size_t nodes) : there(nodes), lives(nodes) {}
  void add(uint32_t node);
  void remove(uint32_t node);
  bool has(const NodeLife& node) const { return there[node.node] && lives[node.node] == node.life; }
};

// Experts (numbers in the grid) without a live holder in `groups`. Empty without a loss.
std::vector<uint32_t> lost_experts(const Groups& groups, const Cluster& cluster);
// True if no node of the group is lost.
bool whole(const Group& group, const Cluster& cluster);
// True if any node is left: every node has the dense weights.
bool any_alive(const Groups& groups, const Cluster& cluster);

struct Regrouped {
  Groups groups;
  std::vector<bool> member;  // [node]
  double moved_bytes = 0;    // received by the node that receives most
};

using Plans = std::vector<std::shared_ptr<const Plan>>;  // one for each group

// Assigns the present nodes to the positions of `plans`. Nodes stay in their group, and take the
// position of which they hold the most experts (greedily, the best match first); surplus nodes are
// left out. plans[g] continues groups[g]. Precondition: the plans have no more positions together
// than there are nodes.
Regrouped regroup(const CostModel& model, const Groups& groups, const Plans& plans,
                  const Cluster& cluster);

// Number of nodes of every elastic group: its size before, less lost nodes; joiners go to the
// smallest group, so that a loss changes one group only. `group_nodes` 0: one group. Groups too
// small to hold every expert (`nodes_min`) are dissolved.
std::vector<uint32_t> elastic_sizes(const Groups& groups, const Cluster& cluster,
                                    uint32_t group_nodes, uint32_t nodes_min);

}  // namespace moetrain::simulate
