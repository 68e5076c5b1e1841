#include "trainer/placement/laer_placer.h"

#include <algorithm>
#include <numeric>

#include "formats/base/assert.h"

namespace moetrain {

namespace {

// A heap of pairs, the least on top, whose top has grown: the heap again.
void sink_top(std::vector<std::pair<double, uint32_t>>& heap) {
  const auto grown = heap.front();
  size_t at = 0;
  for (size_t child = 1; child < heap.size(); child = 2 * at + 1) {
    if (child + 1 < heap.size() && heap[child + 1] < heap[child]) ++child;
    if (!(heap[child] < grown)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = grown;
}

}  // namespace

NodeGroups::NodeGroups(std::span<const uint32_t> node_of_rank)
    : node_of_rank_(node_of_rank.begin(), node_of_rank.end()) {
  CKPT_ASSERT(!node_of_rank.empty());
  first_.assign(std::ranges::max(node_of_rank) + 2, 0);
  for (const uint32_t node : node_of_rank) ++first_[node + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  std::vector<uint32_t> next(first_.begin(), first_.end() - 1);
  ranks_.resize(node_of_rank.size());
  for (uint32_t rank = 0; rank < ranks(); ++rank) ranks_[next[node_of_rank[rank]]++] = rank;
}

NodeGroups NodeGroups::even(uint32_t ranks, uint32_t nodes) {
  std::vector<uint32_t> node_of_rank(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) node_of_rank[rank] = rank / (ranks / nodes);
  return NodeGroups(node_of_rank);
}

LaerPlacer::LaerPlacer(const NodeGroups& nodes, uint32_t slots_per_rank, uint32_t experts)
    : nodes_(nodes),
      slots_per_rank_(slots_per_rank),
      slots_(size_t{nodes.ranks()} * slots_per_rank),
      filled_(nodes.ranks()),
      lightest_(nodes.nodes()),
      room_(nodes.nodes()),
      node_loads_(nodes.nodes()),
      order_(experts),
      shares_(experts),
      copies_(size_t{experts} * nodes.nodes()),
      counts_(experts),
      dealt_(nodes.nodes()) {}

void LaerPlacer::clear() {
  std::ranges::fill(filled_, 0);
  std::ranges::fill(node_loads_, 0);
  for (uint32_t node = 0; node < nodes_.nodes(); ++node) {
    room_[node] = nodes_.size(node) * slots_per_rank_;
    lightest_[node].clear();
    for (const uint32_t rank : nodes_.ranks_of(node)) lightest_[node].emplace_back(0, rank);
  }
}

void LaerPlacer::place(std::span<const uint64_t> loads, std::span<const uint32_t> counts,
                       Rule rule) {
  clear();
  loads_ = loads;
  std::ranges::copy(counts, counts_.begin());
  order_experts(counts, rule);
  const uint32_t nodes = nodes_.nodes();
  for (const uint32_t expert : order_) {
    deal_to_nodes(expert, rule);
    const double of_rank = static_cast<double>(loads[expert]) / nodes_.ranks();
    const double foreign = of_rank * ranks_without(expert) / counts[expert];
    for (uint32_t node = 0; node < nodes; ++node) {
      const uint32_t copies = copies_[size_t{expert} * nodes + node];
      if (copies == 0) continue;
      const double share = rule == Rule::kLite
                               ? of_rank * nodes_.size(node) / copies + foreign
                               : static_cast<double>(loads[expert]) / counts[expert];
      for (uint32_t i = 0; i < copies; ++i) put(expert, node, share);
      node_loads_[node] += share * copies / nodes_.size(node);
    }
  }
}

void LaerPlacer::order_experts(std::span<const uint32_t> counts, Rule rule) {
  const uint32_t nodes = nodes_.nodes();
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    // Replicas beyond a whole number for each node relieve some nodes only.
    const uint32_t count = counts[expert];
    const uint32_t whole = rule == Rule::kLite && count > nodes ? count / nodes * nodes : count;
    shares_[expert] = static_cast<double>(loads_[expert]) / whole;
  }
  std::iota(order_.begin(), order_.end(), 0u);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](uint32_t a, uint32_t b) { return shares_[a] > shares_[b]; });
}

// Sets copies_ of the expert: rounds over the nodes with room.
void LaerPlacer::deal_to_nodes(uint32_t expert, Rule rule) {
  const uint32_t nodes = nodes_.nodes();
  const std::span<uint32_t> copies = std::span(copies_).subspan(size_t{expert} * nodes, nodes);
  std::ranges::fill(copies, 0);
  std::iota(dealt_.begin(), dealt_.end(), 0u);
  if (rule == Rule::kLite) {
    std::stable_sort(dealt_.begin(), dealt_.end(),
                     [&](uint32_t a, uint32_t b) { return node_loads_[a] < node_loads_[b]; });
  }
  for (uint32_t left = counts_[expert]; left > 0;) {
    for (const uint32_t node : dealt_) {
      if (room_[node] == 0) continue;
      --room_[node];
      ++copies[node];
      if (--left == 0) break;
    }
  }
}

// Ranks on nodes without a replica of the expert.
uint32_t LaerPlacer::ranks_without(uint32_t expert) const {
  uint32_t ranks = 0;
  for (uint32_t node = 0; node < nodes_.nodes(); ++node) {
    if (copies_[size_t{expert} * nodes_.nodes() + node] == 0) ranks += nodes_.size(node);
  }
  return ranks;
}

void LaerPlacer::put(uint32_t expert, uint32_t node, double share) {
  std::vector<Rank>& heap = lightest_[node];
  const uint32_t rank = heap.front().second;
  slots_[size_t{rank} * slots_per_rank_ + filled_[rank]++] = expert;
  if (filled_[rank] == slots_per_rank_) {
    heap.front() = heap.back();
    heap.pop_back();
    if (!heap.empty()) sink_top(heap);
    return;
  }
  heap.front().first += share;
  sink_top(heap);
}

LaerPlacer::Expected LaerPlacer::expected(const LaerCosts& costs) const {
  const uint32_t nodes = nodes_.nodes();
  const auto experts = static_cast<uint32_t>(counts_.size());
  std::vector<double> of_rank(experts);  // tokens of each rank
  std::vector<double> foreign(experts);  // that each replica gets from nodes without one
  for (uint32_t expert = 0; expert < experts; ++expert) {
    of_rank[expert] = static_cast<double>(loads_[expert]) / nodes_.ranks();
    foreign[expert] = of_rank[expert] * ranks_without(expert) / counts_[expert];
  }
  Expected expected;
  std::vector<uint32_t> replicas(experts);  // on the rank
  for (uint32_t rank = 0; rank < nodes_.ranks(); ++rank) {
    const uint32_t node = nodes_.node(rank);
    const auto held = std::span(slots_).subspan(size_t{rank} * slots_per_rank_, filled_[rank]);
    double computed = 0;
    double near = 0;
    double far = 0;
    for (const uint32_t expert : held) ++replicas[expert];
    for (const uint32_t expert : held) {
      if (replicas[expert] == 0) continue;  // counted
      const double of_node = of_rank[expert] * nodes_.size(node) /
                             copies_[size_t{expert} * nodes + node] * replicas[expert];
      computed += of_node + foreign[expert] * replicas[expert];
      near += of_node - std::min(of_node, of_rank[expert]);
      far += foreign[expert] * replicas[expert];
      replicas[expert] = 0;
    }
    expected.computed_max = std::max(expected.computed_max, computed);
    expected.received_max =
        std::max(expected.received_max, near * costs.within_node + far * costs.between_nodes);
  }
  return expected;
}

LayerSlots LaerPlacer::slots() const {
  LayerSlots slots(nodes_.ranks());
  for (uint32_t rank = 0; rank < nodes_.ranks(); ++rank) {
    const auto begin = slots_.begin() + size_t{rank} * slots_per_rank_;
    slots[rank].assign(begin, begin + filled_[rank]);
  }
  return slots;
}

}  // namespace moetrain
