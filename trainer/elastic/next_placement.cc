#include "trainer/elastic/next_placement.h"

#include <algorithm>

namespace moetrain {

Result<ExpertPlacement> place_experts(const PlacementChoice& choice, const ModelConfig& shape,
                                      uint32_t ranks, std::span<const int64_t> routed) {
  if (choice.policy == PolicyName::kStatic) {
    // More ranks than experts have come together: those that are too many hold none.
    std::vector<bool> holds(ranks, true);
    for (uint32_t rank = shape.experts; rank < ranks; ++rank) holds[rank] = false;
    if (ranks > shape.experts) return place_experts_on(choice, shape, holds, routed);
    return static_placement(shape.layers, shape.experts, ranks);
  }
  PlacementRequest request;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    std::vector<uint64_t>& loads = request.loads.emplace_back(shape.experts, 1);
    for (uint32_t expert = 0; expert < shape.experts && !routed.empty(); ++expert) {
      loads[expert] = static_cast<uint64_t>(routed[size_t{layer} * shape.experts + expert]);
    }
  }
  request.ranks = ranks;
  request.slots_per_rank = std::max(choice.slots, (shape.experts + ranks - 1) / ranks);
  request.replicas_min = choice.replicas_min;
  request.replicas_min = std::max(replicas_possible(request), 1u);
  CKPT_ASSIGN(std::vector<LayerSlots> slots, plan_placement(choice.policy, request));
  return make_placement(std::move(slots), shape.experts, ranks);
}

Result<ExpertPlacement> place_experts_on(const PlacementChoice& choice, const ModelConfig& shape,
                                         const std::vector<bool>& stays,
                                         std::span<const int64_t> routed) {
  const auto ranks = static_cast<uint32_t>(std::count(stays.begin(), stays.end(), true));
  CKPT_ASSIGN(ExpertPlacement placement, place_experts(choice, shape, ranks, routed));
  for (LayerSlots& layer : placement.slots) {
    LayerSlots spread(stays.size());
    auto next = layer.begin();
    for (size_t rank = 0; rank < stays.size(); ++rank) {
      if (stays[rank]) spread[rank] = std::move(*next++);
    }
    layer = std::move(spread);
  }
  placement.ranks = static_cast<uint32_t>(stays.size());
  return placement;
}

uint32_t effective_replicas(const ExpertPlacement& placement) {
  size_t least = placement.ranks;
  for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
    for (const auto& ranks : holders_of_experts(placement, layer)) {
      least = std::min(least, ranks.size());
    }
  }
  return static_cast<uint32_t>(least);
}

}  // namespace moetrain
