#include "trainer/placement/laer.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>

namespace moetrain {

namespace {

std::vector<uint32_t> even_counts(const PlacementRequest& request) {
  const uint32_t experts = request.experts();
  std::vector<uint32_t> counts(experts, request.slots() / experts);
  for (uint32_t e = 0; e < request.slots() % experts; ++e) ++counts[e];
  return counts;
}

std::vector<uint32_t> counts_by_load(const PlacementRequest& request,
                                     const std::vector<uint64_t>& loads) {
  std::priority_queue<std::pair<double, int64_t>> heaviest;  // load per replica, -expert
  std::vector<uint32_t> counts(loads.size(), 1);
  for (uint32_t e = 0; e < loads.size(); ++e) {
    heaviest.emplace(static_cast<double>(loads[e]), -static_cast<int64_t>(e));
  }
  for (auto left = request.slots() - static_cast<uint32_t>(loads.size()); left > 0; --left) {
    const auto expert = static_cast<uint32_t>(-heaviest.top().second);
    heaviest.pop();
    const double share = static_cast<double>(loads[expert]) / ++counts[expert];
    heaviest.emplace(share, -static_cast<int64_t>(expert));
  }
  return counts;
}

class Placer {
 public:
  explicit Placer(const PlacementRequest& request)
      : request_(request),
        ranks_per_node_(request.ranks / request.nodes),
        slots_(request.ranks),
        loads_(request.ranks),
        room_(request.nodes, ranks_per_node_ * request.slots_per_rank) {}

  LayerSlots place(const std::vector<uint64_t>& loads, const std::vector<uint32_t>& counts) {
    std::vector<double> shares(loads.size());
    for (size_t e = 0; e < loads.size(); ++e) shares[e] = static_cast<double>(loads[e]) / counts[e];
    std::vector<uint32_t> order(loads.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return shares[a] > shares[b]; });
    for (const uint32_t expert : order) {
      std::vector<uint32_t> copies(request_.nodes);
      for (uint32_t i = 0; i < counts[expert]; ++i) put(expert, shares[expert], copies);
    }
    return std::move(slots_);
  }

 private:
  void put(uint32_t expert, double share, std::vector<uint32_t>& copies) {
    uint32_t node = UINT32_MAX;
    for (uint32_t n = 0; n < request_.nodes; ++n) {
      if (room_[n] > 0 && (node == UINT32_MAX || copies[n] < copies[node])) node = n;
    }
    uint32_t best = UINT32_MAX;
    for (uint32_t rank = node * ranks_per_node_; rank < (node + 1) * ranks_per_node_; ++rank) {
      if (slots_[rank].size() == request_.slots_per_rank) continue;
      if (best == UINT32_MAX || loads_[rank] < loads_[best]) best = rank;
    }
    slots_[best].push_back(expert);
    loads_[best] += share;
    --room_[node];
    ++copies[node];
  }

  const PlacementRequest& request_;
  const uint32_t ranks_per_node_;
  LayerSlots slots_;
  std::vector<double> loads_;   // [rank]
  std::vector<uint32_t> room_;  // [node]: free slots
};

}  // namespace

double laer_cost(const LayerSlots& slots, const std::vector<uint64_t>& loads, uint32_t nodes,
                 const LaerCosts& costs) {
  const auto ranks = static_cast<uint32_t>(slots.size());
  const uint32_t per_node = ranks / nodes;
  std::vector<std::vector<uint32_t>> at(loads.size());  // [expert]: the rank of each slot
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (const uint32_t expert : slots[rank]) at[expert].push_back(rank);
  }
  std::vector<double> computed(ranks);
  double communication = 0;
  std::vector<uint32_t> copies(nodes);
  for (size_t expert = 0; expert < at.size(); ++expert) {
    std::ranges::fill(copies, 0);
    for (const uint32_t rank : at[expert]) ++copies[rank / per_node];
    const auto away = static_cast<double>(std::ranges::count(copies, 0u));
    const double of_node = static_cast<double>(loads[expert]) / nodes;
    for (const uint32_t rank : at[expert]) {
      const double own = of_node / copies[rank / per_node];
      const double foreign = of_node * away / static_cast<double>(at[expert].size());
      computed[rank] += own + foreign;
      // Of the node's tokens one in so many is on this rank already.
      communication += own * (per_node - 1) / per_node * costs.within_node;
      communication += foreign * costs.between_nodes;
    }
  }
  return 4 * communication + (3 + costs.recompute) * std::ranges::max(computed);
}

std::vector<LayerSlots> plan_laer(const PlacementRequest& request, const LaerCosts& costs) {
  std::vector<LayerSlots> layers;
  layers.reserve(request.layers());
  for (const std::vector<uint64_t>& loads : request.loads) {
    LayerSlots even = Placer(request).place(loads, even_counts(request));
    LayerSlots by_load = Placer(request).place(loads, counts_by_load(request, loads));
    const bool better = laer_cost(by_load, loads, request.nodes, costs) <=
                        laer_cost(even, loads, request.nodes, costs);
    layers.push_back(better ? std::move(by_load) : std::move(even));
  }
  return layers;
}

}  // namespace moetrain
