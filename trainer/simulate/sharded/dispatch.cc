#include "trainer/simulate/sharded/dispatch.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "formats/base/assert.h"

namespace moetrain::simulate::sharded {

namespace {

// Tokens that leave a rank or node, and that arrive there.
struct Traffic {
  double sent = 0;
  double received = 0;
  double most() const { return std::max(sent, received); }
};

class Dispatcher {
 public:
  Dispatcher(size_t ranks, uint32_t ranks_per_node)
      : ranks_per_node_(ranks_per_node),
        computed_(ranks),
        ranks_(ranks),
        nodes_(ranks / ranks_per_node) {}

  // Tokens of one rank for one expert, shared evenly by replicas on these ranks.
  void send(uint32_t from, double tokens, std::span<const uint32_t> replicas) {
    const double share = tokens / static_cast<double>(replicas.size());
    for (const uint32_t to : replicas) {
      computed_[to] += share;
      if (to == from) continue;
      const bool same_node = from / ranks_per_node_ == to / ranks_per_node_;
      Traffic& source = same_node ? ranks_[from] : nodes_[from / ranks_per_node_];
      Traffic& target = same_node ? ranks_[to] : nodes_[to / ranks_per_node_];
      source.sent += share;
      target.received += share;
    }
  }

  Dispatch take() { return {std::move(computed_), most_of(ranks_), most_of(nodes_)}; }

 private:
  static double most_of(const std::vector<Traffic>& all) {
    double most = 0;
    for (const Traffic& one : all) most = std::max(most, one.most());
    return most;
  }

  uint32_t ranks_per_node_;
  std::vector<double> computed_;
  std::vector<Traffic> ranks_;  // within nodes
  std::vector<Traffic> nodes_;  // between them
};

}  // namespace

double Dispatch::busiest() const { return std::ranges::max(computed); }

double Dispatch::mean() const {
  return std::accumulate(computed.begin(), computed.end(), 0.0) /
         static_cast<double>(computed.size());
}

Dispatch dispatch(const LayerSlots& slots, const TokenCounts& tokens, uint32_t ranks_per_node,
                  Sharing sharing) {
  CKPT_ASSERT(slots.size() == tokens.size() && slots.size() % ranks_per_node == 0);
  const auto ranks = static_cast<uint32_t>(slots.size());
  const size_t experts = tokens.front().size();
  // [expert]: the rank of each of its slots, ascending.
  std::vector<std::vector<uint32_t>> replicas(experts);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (const uint32_t expert : slots[rank]) replicas[expert].push_back(rank);
  }
  Dispatcher dispatcher(ranks, ranks_per_node);
  for (size_t expert = 0; expert < experts; ++expert) {
    const std::vector<uint32_t>& all = replicas[expert];
    CKPT_ASSERT(!all.empty());
    for (uint32_t first = 0; first < ranks; first += ranks_per_node) {
      const auto begin = std::ranges::lower_bound(all, first);
      const auto end = std::ranges::lower_bound(all, first + ranks_per_node);
      const std::span<const uint32_t> here(begin, end);
      const bool by_node = sharing == Sharing::kNode && !here.empty();
      const std::span<const uint32_t> serving = by_node ? here : std::span(all);
      for (uint32_t rank = first; rank < first + ranks_per_node; ++rank) {
        dispatcher.send(rank, tokens[rank][expert], serving);
      }
    }
  }
  return dispatcher.take();
}

}  // namespace moetrain::simulate::sharded
