#include "trainer/placement/others.h"

#include <algorithm>
#include <numeric>

#include "trainer/placement/judge.h"

namespace moetrain {

namespace {

bool keeps_promise(const std::vector<LayerSlots>& layers, const PlacementRequest& request) {
  return std::ranges::all_of(holder_sets(layers, request), [&](const auto& domains) {
    return domains.size() >= request.replicas_min;
  });
}

// All ranks of a block of experts hold the same, so that repeating it changes no rank's load.
void fill_up(LayerSlots& slots, const PlacementRequest& request,
             const std::vector<uint64_t>& loads) {
  const std::vector<double> of_rank = rank_loads(slots, loads);
  const auto busiest = static_cast<size_t>(std::ranges::max_element(of_rank) - of_rank.begin());
  const std::vector<uint32_t> spare = slots[busiest];
  for (auto& rank : slots) {
    if (rank.empty()) rank = spare;
    for (size_t i = 0; rank.size() < request.slots_per_rank; ++i) rank.push_back(rank[i]);
  }
}

}  // namespace

Result<std::optional<std::vector<LayerSlots>>> promised_layers(PolicyName policy,
                                                               const PlacementRequest& request) {
  if (request.replicas_min > 1 && request.layers() > 1) {
    // A policy that does not promise it hardly ever reaches it: usually the first layer shows that.
    PlacementRequest first = request;
    first.loads.resize(1);
    first.current.resize(std::min<size_t>(first.current.size(), 1));
    CKPT_ASSIGN(const auto layer, plan_placement(policy, first));
    if (!keeps_promise(layer, first)) return std::optional<std::vector<LayerSlots>>();
  }
  CKPT_ASSIGN(auto layers, plan_placement(policy, request));
  if (!keeps_promise(layers, request)) return std::optional<std::vector<LayerSlots>>();
  for (size_t at = 0; at < layers.size(); ++at) fill_up(layers[at], request, request.loads[at]);
  return std::optional(std::move(layers));
}

double mean_balance(const std::vector<LayerSlots>& layers, const PlacementRequest& request) {
  double sum = 0;
  for (size_t at = 0; at < layers.size(); ++at) {
    const std::vector<double> loads = rank_loads(layers[at], request.loads[at]);
    const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
    sum += std::ranges::max(loads) * request.ranks / total;
  }
  return sum / static_cast<double>(layers.size());
}

bool may_reach(const std::vector<LayerSlots>& layers, const PlacementRequest& request,
               const std::vector<RecoveryWanted>& wanted) {
  const uint32_t domains = request.domains();
  std::vector<bool> alone(domains);
  for (const auto& set : holder_sets(layers, request)) {
    if (set.size() == 1) alone[set.front()] = true;
  }
  const auto needed = static_cast<uint32_t>(std::ranges::count(alone, true));
  return std::ranges::all_of(wanted, [&](const RecoveryWanted& one) {
    // The probability that none of the needed domains fails.
    double probability = 1;
    for (uint32_t i = 0; i < one.failures; ++i) {
      probability *= static_cast<double>(domains - std::min(domains, needed + i)) / (domains - i);
    }
    return probability >= one.probability - 1e-9;
  });
}

}  // namespace moetrain
