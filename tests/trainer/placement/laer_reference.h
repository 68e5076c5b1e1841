// Reference for LAER-MoE's planner: repeated search, without heaps. The fast planner must give the
// same slots.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainer/placement/laer.h"

namespace moetrain::reference {

struct Layer {
  const NodeGroups& nodes;
  uint32_t slots_per_rank;
  std::vector<uint64_t> loads;

  uint32_t slots() const { return nodes.ranks() * slots_per_rank; }
  uint32_t experts() const { return static_cast<uint32_t>(loads.size()); }
};

// The expert with the largest load per replica among those that `may` accepts; experts() if none.
template <typename May>
uint32_t most_loaded(const Layer& layer, const std::vector<uint32_t>& counts, const May& may) {
  uint32_t best = layer.experts();
  for (uint32_t e = 0; e < layer.experts(); ++e) {
    if (!may(e)) continue;
    const auto share = [&](uint32_t x) { return static_cast<double>(layer.loads[x]) / counts[x]; };
    if (best == layer.experts() || share(e) > share(best)) best = e;
  }
  return best;
}

inline std::vector<uint32_t> counts(const Layer& layer, uint32_t first, bool rounds,
                                    uint32_t replicas_max) {
  std::vector<uint32_t> counts(layer.experts(), first);
  const uint32_t nodes = layer.nodes.nodes();
  for (const bool by_round : {rounds, false}) {
    std::vector<bool> stays(layer.experts());
    for (;;) {
      const uint32_t left = layer.slots() - std::accumulate(counts.begin(), counts.end(), 0u);
      const uint32_t e = most_loaded(layer, counts, [&](uint32_t x) { return !stays[x]; });
      if (left == 0 || e == layer.experts()) break;
      const uint32_t more = by_round && counts[e] >= nodes ? nodes : 1;
      if (more > left || counts[e] + more > replicas_max) {
        stays[e] = true;
      } else {
        counts[e] += more;
      }
    }
  }
  return counts;
}

// A candidate after placement; copies[expert][node].
struct Placed {
  LayerSlots slots;
  std::vector<std::vector<uint32_t>> copies;
};

inline uint32_t remote_ranks(const Layer& layer, const std::vector<uint32_t>& copies) {
  uint32_t remote = 0;
  for (uint32_t n = 0; n < layer.nodes.nodes(); ++n) {
    if (copies[n] == 0) remote += layer.nodes.size(n);
  }
  return remote;
}

inline std::vector<uint32_t> order(const Layer& layer, const std::vector<uint32_t>& counts,
                                   bool lite) {
  std::vector<double> shares;
  const uint32_t nodes = layer.nodes.nodes();
  for (uint32_t e = 0; e < layer.experts(); ++e) {
    uint32_t count = counts[e];
    if (lite && count > nodes) count -= count % nodes;
    shares.push_back(static_cast<double>(layer.loads[e]) / count);
  }
  std::vector<uint32_t> order(layer.experts());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return shares[a] > shares[b]; });
  return order;
}

inline Placed place(const Layer& layer, const std::vector<uint32_t>& counts, bool lite) {
  const NodeGroups& nodes = layer.nodes;
  Placed placed{LayerSlots(nodes.ranks()), {}};
  placed.copies.assign(layer.experts(), std::vector<uint32_t>(nodes.nodes()));
  std::vector<double> loads(nodes.ranks());
  std::vector<double> node_loads(nodes.nodes());
  std::vector<uint32_t> room(nodes.nodes());
  for (uint32_t n = 0; n < nodes.nodes(); ++n) room[n] = nodes.size(n) * layer.slots_per_rank;
  for (const uint32_t e : order(layer, counts, lite)) {
    std::vector<uint32_t>& copies = placed.copies[e];
    for (uint32_t i = 0; i < counts[e]; ++i) {
      uint32_t best = nodes.nodes();
      for (uint32_t n = 0; n < nodes.nodes(); ++n) {
        if (room[n] == 0) continue;
        if (best == nodes.nodes() || copies[n] < copies[best] ||
            (lite && copies[n] == copies[best] && node_loads[n] < node_loads[best])) {
          best = n;
        }
      }
      --room[best];
      ++copies[best];
    }
    const double of_rank = static_cast<double>(layer.loads[e]) / nodes.ranks();
    const double foreign = of_rank * remote_ranks(layer, copies) / counts[e];
    for (uint32_t n = 0; n < nodes.nodes(); ++n) {
      const double share = lite ? of_rank * nodes.size(n) / copies[n] + foreign
                                : static_cast<double>(layer.loads[e]) / counts[e];
      for (uint32_t i = 0; i < copies[n]; ++i) {
        uint32_t best = nodes.ranks();
        for (uint32_t rank = 0; rank < nodes.ranks(); ++rank) {
          if (nodes.node(rank) != n) continue;
          if (placed.slots[rank].size() == layer.slots_per_rank) continue;
          if (best == nodes.ranks() || loads[rank] < loads[best]) best = rank;
        }
        placed.slots[best].push_back(e);
        loads[best] += share;
      }
      if (copies[n] > 0) node_loads[n] += share * copies[n] / nodes.size(n);
    }
  }
  return placed;
}

inline double lite_cost(const Layer& layer, const std::vector<uint32_t>& counts,
                        const Placed& placed, const LaerCosts& costs) {
  double computed_max = 0;
  double received_max = 0;
  for (uint32_t rank = 0; rank < layer.nodes.ranks(); ++rank) {
    const std::vector<uint32_t>& held = placed.slots[rank];
    const uint32_t node = layer.nodes.node(rank);
    double computed = 0;
    double near = 0;
    double far = 0;
    for (auto e = held.begin(); e != held.end(); ++e) {
      if (std::find(held.begin(), e, *e) != e) continue;  // counted
      const auto replicas = static_cast<uint32_t>(std::ranges::count(held, *e));
      const double of_rank = static_cast<double>(layer.loads[*e]) / layer.nodes.ranks();
      const double foreign = of_rank * remote_ranks(layer, placed.copies[*e]) / counts[*e];
      const double of_node = of_rank * layer.nodes.size(node) / placed.copies[*e][node] * replicas;
      computed += of_node + foreign * replicas;
      near += of_node - std::min(of_node, of_rank);
      far += foreign * replicas;
    }
    computed_max = std::max(computed_max, computed);
    received_max = std::max(received_max, near * costs.within_node + far * costs.between_nodes);
  }
  return 4 * received_max + (3 + costs.recompute) * computed_max;
}

inline LayerSlots plan(const Layer& layer, LaerScheme scheme, const LaerCosts& costs) {
  const uint32_t nodes = layer.nodes.nodes();
  const bool on_each_node = layer.experts() * nodes <= layer.slots();
  const bool lite = scheme == LaerScheme::kLite;
  std::vector<uint32_t> even(layer.experts(), layer.slots() / layer.experts());
  for (uint32_t e = 0; e < layer.slots() % layer.experts(); ++e) ++even[e];
  std::vector<std::vector<uint32_t>> tried;
  if (!lite) {
    tried = {counts(layer, on_each_node ? nodes : 1, true, layer.slots()), even};
  } else {
    const uint32_t most =
        std::max(layer.nodes.ranks(), (layer.slots() + layer.experts() - 1) / layer.experts());
    tried.push_back(counts(layer, 1, false, most));
    tried.push_back(counts(layer, 1, true, most));
    if (on_each_node) tried.push_back(counts(layer, nodes, true, most));
    tried.push_back(even);
  }
  LayerSlots best;
  double best_cost = HUGE_VAL;
  for (const std::vector<uint32_t>& one : tried) {
    const Placed placed = place(layer, one, lite);
    const double cost = lite ? lite_cost(layer, one, placed, costs)
                             : laer_cost(placed.slots, layer.loads, layer.nodes, costs);
    if (cost >= best_cost) continue;
    best_cost = cost;
    best = placed.slots;
  }
  return best;
}

}  // namespace moetrain::reference
