// LaerPlacer: puts the replicas of one layer into slots, greedily, and says what that costs.
//
// The rule of LAER-MoE: experts in descending load per replica; each replica goes to the node with
// the fewest copies of the expert, and there to the lightest rank with a free slot. Ties go to the
// lower number. The nodes of an expert are dealt round by round, and a node keeps its ranks in a
// heap: O(slots * log(ranks per node)) for a layer, not O(slots * ranks).
//
// Lite routing decides the load of a replica. Replicas on the source's node share that node's
// tokens. A node without a replica sends its tokens to all replicas evenly. Sources are taken to
// have equal numbers of tokens on all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "trainer/placement/layer_slots.h"

namespace moetrain {

// Per token, in units of the time in which an expert computes one. Assumed: the published planner
// takes them from a profile of its cluster (A100, NVLink within a node, InfiniBand between nodes).
struct LaerCosts {
  double within_node = 0.01;
  double between_nodes = 0.1;
  double recompute = 1;  // 1: the forward pass runs again before the backward pass
};

// Ranks by node. Nodes may have different numbers of ranks; every node has one.
class NodeGroups {
 public:
  // node_of_rank: 0 .. nodes - 1, each of them used. Not empty.
  explicit NodeGroups(std::span<const uint32_t> node_of_rank);
  // Ranks r * nodes / ranks share a node. `nodes` divides `ranks`.
  static NodeGroups even(uint32_t ranks, uint32_t nodes);

  uint32_t ranks() const { return static_cast<uint32_t>(node_of_rank_.size()); }
  uint32_t nodes() const { return static_cast<uint32_t>(first_.size() - 1); }
  uint32_t node(uint32_t rank) const { return node_of_rank_[rank]; }
  // Ascending.
  std::span<const uint32_t> ranks_of(uint32_t node) const {
    return std::span(ranks_).subspan(first_[node], size(node));
  }
  uint32_t size(uint32_t node) const { return first_[node + 1] - first_[node]; }

 private:
  std::vector<uint32_t> node_of_rank_;
  std::vector<uint32_t> first_;  // [nodes + 1]: into ranks_
  std::vector<uint32_t> ranks_;  // by node
};

class LaerPlacer {
 public:
  enum class Rule {
    // Published: a replica counts as load / replicas, wherever it is; of nodes with equally few
    // copies the lowest takes the next one.
    kPublished,
    // Ours: a replica counts as what lite routing sends to it; of nodes with equally few copies the
    // least loaded takes the next one.
    kLite,
  };

  // `nodes` outlives this.
  LaerPlacer(const NodeGroups& nodes, uint32_t slots_per_rank, uint32_t experts);

  // counts: slots of each expert, at least one, no more in all than there are slots.
  void place(std::span<const uint64_t> loads, std::span<const uint32_t> counts, Rule rule);

  // The tokens that lite routing is expected to send under the last place(). Own tokens stay first
  // (token_shares.h).
  struct Expected {
    double computed_max = 0;  // tokens that the busiest rank computes
    double received_max = 0;  // T_comm of the rank with most: tokens from other ranks, weighed
  };
  Expected expected(const LaerCosts& costs) const;
  LayerSlots slots() const;

 private:
  using Rank = std::pair<double, uint32_t>;  // load, rank

  void clear();
  void order_experts(std::span<const uint32_t> counts, Rule rule);
  void deal_to_nodes(uint32_t expert, Rule rule);
  uint32_t ranks_without(uint32_t expert) const;
  void put(uint32_t expert, uint32_t node, double share);

  const NodeGroups& nodes_;
  const uint32_t slots_per_rank_;
  std::span<const uint64_t> loads_;          // of the last place()
  std::vector<uint32_t> slots_;              // [rank][slot]
  std::vector<uint32_t> filled_;             // [rank]: slots in use
  std::vector<std::vector<Rank>> lightest_;  // [node]: a heap of the ranks with a free slot
  std::vector<uint32_t> room_;               // [node]: free slots
  std::vector<double> node_loads_;           // [node]: per rank
  std::vector<uint32_t> order_;              // experts
  std::vector<double> shares_;               // [expert]: the largest of its replicas
  std::vector<uint32_t> copies_;             // [expert][node]
  std::vector<uint32_t> counts_;             // [expert]
  std::vector<uint32_t> dealt_;              // nodes, in the order of a round
};

}  // namespace moetrain
