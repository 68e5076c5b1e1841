#include "trainer/placement/eplb.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "formats/base/assert.h"

namespace moetrain {

namespace {

struct Replicas {
  std::vector<uint32_t> item;   // [slot]: which item it is a replica of
  std::vector<double> weights;  // [slot]: the item's, shared by its replicas
};

// One replica of every item, in order; then each further one for the item with most load per
// replica.
Replicas replicate(const std::vector<double>& weights, size_t slots) {
  using Heavy = std::pair<double, int64_t>;  // weight per replica, -item
  std::priority_queue<Heavy> heaviest;
  std::vector<uint32_t> counts(weights.size(), 1);
  Replicas replicas;
  replicas.item.reserve(slots);
  for (uint32_t item = 0; item < weights.size(); ++item) {
    replicas.item.push_back(item);
    heaviest.emplace(weights[item], -static_cast<int64_t>(item));
  }
  while (replicas.item.size() < slots) {
    const auto item = static_cast<uint32_t>(-heaviest.top().second);
    heaviest.pop();
    replicas.item.push_back(item);
    heaviest.emplace(weights[item] / ++counts[item], -static_cast<int64_t>(item));
  }
  replicas.weights.reserve(slots);
  for (const uint32_t item : replicas.item) {
    replicas.weights.push_back(weights[item] / counts[item]);
  }
  return replicas;
}

// One node: its experts, replicated and packed to its ranks.
void place_node(const std::vector<uint64_t>& loads, const std::vector<uint32_t>& experts,
                uint32_t ranks, uint32_t slots_per_rank, LayerSlots& slots) {
  std::vector<double> weights;
  weights.reserve(experts.size());
  for (const uint32_t expert : experts) weights.push_back(static_cast<double>(loads[expert]));
  const Replicas replicas = replicate(weights, size_t{ranks} * slots_per_rank);
  for (const auto& pack : pack_evenly(replicas.weights, ranks)) {
    std::vector<uint32_t>& rank = slots.emplace_back();
    rank.reserve(pack.size());
    for (const uint32_t replica : pack) rank.push_back(experts[replicas.item[replica]]);
  }
}

LayerSlots place_layer(const PlacementRequest& request, const std::vector<uint64_t>& loads) {
  const bool hierarchical = request.expert_groups % request.nodes == 0;
  const uint32_t nodes = hierarchical ? request.nodes : 1;
  const uint32_t groups = hierarchical ? request.expert_groups : 1;
  const uint32_t group_size = request.experts() / groups;
  std::vector<double> group_loads(groups);
  for (uint32_t e = 0; e < loads.size(); ++e) {
    group_loads[e / group_size] += static_cast<double>(loads[e]);
  }
  LayerSlots slots;
  slots.reserve(request.ranks);
  for (const auto& groups_of_node : pack_evenly(group_loads, nodes)) {
    std::vector<uint32_t> experts;
    experts.reserve(groups_of_node.size() * group_size);
    for (const uint32_t group : groups_of_node) {
      for (uint32_t i = 0; i < group_size; ++i) experts.push_back(group * group_size + i);
    }
    place_node(loads, experts, request.ranks / nodes, request.slots_per_rank, slots);
  }
  return slots;
}

}  // namespace

std::vector<std::vector<uint32_t>> pack_evenly(const std::vector<double>& weights, uint32_t packs) {
  CKPT_ASSERT(weights.size() % packs == 0);
  const size_t room = weights.size() / packs;
  std::vector<uint32_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return weights[a] > weights[b]; });
  using Pack = std::pair<double, uint32_t>;  // weight, pack
  std::priority_queue<Pack, std::vector<Pack>, std::greater<>> lightest;
  for (uint32_t pack = 0; pack < packs; ++pack) lightest.emplace(0, pack);
  std::vector<std::vector<uint32_t>> packed(packs);
  for (const uint32_t item : order) {
    const auto [weight, pack] = lightest.top();
    lightest.pop();
    packed[pack].push_back(item);
    if (packed[pack].size() < room) lightest.emplace(weight + weights[item], pack);
  }
  return packed;
}

std::vector<LayerSlots> plan_eplb(const PlacementRequest& request) {
  std::vector<LayerSlots> layers;
  layers.reserve(request.layers());
  for (const std::vector<uint64_t>& loads : request.loads) {
    layers.push_back(place_layer(request, loads));
  }
  return layers;
}

}  // namespace moetrain
