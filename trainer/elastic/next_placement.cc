#include "trainer/elastic/next_placement.h"

#include <algorithm>
#include <utility>

#include "trainer/elastic/migration_plan.h"

namespace moetrain {

namespace {

// Maps the placement's ranks to the ranks that stay, in their order.
ComputePlacement spread_over(ComputePlacement placement, const std::vector<bool>& stays) {
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

// Each expert once, whatever slots it has.
std::vector<LayerSlots> slots_of(const std::vector<std::vector<bool>>& held,
                                 const ModelConfig& shape) {
  std::vector<LayerSlots> layers(shape.layers, LayerSlots(held.size()));
  for (size_t rank = 0; rank < held.size(); ++rank) {
    for (uint32_t i = 0; i < held[rank].size(); ++i) {
      if (held[rank][i]) layers[i / shape.experts][rank].push_back(i % shape.experts);
    }
  }
  return layers;
}

}  // namespace

Result<ComputePlacement> place_experts(const PlacementOptions& choice, const ModelConfig& shape,
                                       const RankGroup& group, std::span<const int64_t> routed,
                                       std::vector<LayerSlots> current) {
  const uint32_t ranks = group.ranks;
  if (const auto lacking = lacks_slots(choice, shape, ranks)) {
    return ckpt::make_error(ckpt::ErrorCode::kResourceExhausted, "{}", *lacking);
  }
  if (choice.policy == PolicyName::kStatic && choice.slots == 0) {
    // More ranks than experts: surplus ranks hold none.
    if (ranks <= shape.experts) return static_placement(shape.layers, shape.experts, ranks);
    std::vector<bool> holds(ranks, true);
    for (uint32_t rank = shape.experts; rank < ranks; ++rank) holds[rank] = false;
    CKPT_ASSIGN(const ComputePlacement placement,
                static_placement(shape.layers, shape.experts, shape.experts));
    return spread_over(placement, holds);
  }
  PlacementOptions options = choice;
  const uint32_t fewest = (shape.experts + ranks - 1) / ranks;
  if (options.slots != 0) options.slots = std::max(options.slots, fewest);
  const uint32_t possible = std::max(most_replicas(options, shape, group), 1u);
  options.replicas_min = std::min(options.replicas_min, possible);
  return plan_experts(options, shape, group, routed, std::move(current));
}

Result<ComputePlacement> next_placement(const PlacementOptions& choice, const ModelConfig& shape,
                                        const RankGroup& group, const std::vector<bool>& staying,
                                        std::span<const int64_t> routed,
                                        const std::vector<std::vector<bool>>& held) {
  const std::vector<bool> stays = staying.empty() ? std::vector<bool>(group.ranks, true) : staying;
  const RankGroup left = group.only(stays);
  std::vector<std::vector<bool>> stay_held;
  stay_held.reserve(left.ranks);
  for (size_t rank = 0; rank < stays.size(); ++rank) {
    if (stays[rank]) stay_held.push_back(held[rank]);
  }
  CKPT_ASSIGN(const ComputePlacement placement,
              place_experts(choice, shape, left, routed, slots_of(stay_held, shape)));
  return spread_over(keep_in_place(placement, stay_held, left), stays);
}

PlacementOptions placing_of_group(PlacementOptions choice, const ModelConfig& shape,
                                  uint32_t ranks) {
  const uint32_t fewest = (shape.experts + ranks - 1) / ranks;
  if (choice.slots != 0) choice.slots = std::max(choice.slots, fewest);
  return choice;
}

uint32_t effective_replicas(const ComputePlacement& placement, const RankGroup& group) {
  uint32_t least = group.domains();
  for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
    for (const auto& ranks : holders_of_experts(placement, layer)) {
      least = std::min(least, group.domains_among(ranks));
    }
  }
  return least;
}

}  // namespace moetrain
