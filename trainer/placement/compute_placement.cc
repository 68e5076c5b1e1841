#include "trainer/placement/compute_placement.h"

#include <algorithm>

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

Result<ComputePlacement> static_placement(uint32_t layers, uint32_t experts, uint32_t ranks) {
  if (ranks == 0) return make_error(ErrorCode::kInvalidArgument, "placement: no ranks");
  if (ranks > experts) {
    return make_error(ErrorCode::kInvalidArgument,
                      "placement: {} ranks for {} experts per layer; at most one rank per expert",
                      ranks, experts);
  }
  std::vector<std::vector<uint32_t>> layer(ranks);
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    const uint64_t end = (rank + 1) * experts / ranks;
    for (uint64_t expert = rank * experts / ranks; expert < end; ++expert) {
      layer[rank].push_back(static_cast<uint32_t>(expert));
    }
  }
  ComputePlacement placement{ranks, experts, {}};
  placement.slots.assign(layers, layer);
  return placement;
}

Result<ComputePlacement> make_placement(std::vector<LayerSlots> slots, uint32_t experts,
                                        uint32_t ranks, std::vector<uint32_t> node_of_rank) {
  ComputePlacement placement{ranks, experts, std::move(slots), std::move(node_of_rank)};
  CKPT_TRY(validate(placement));
  return placement;
}

Status validate(const ComputePlacement& placement) {
  const size_t nodes = placement.node_of_rank.size();
  if (nodes != 0 && nodes != placement.ranks) {
    return make_error(ErrorCode::kInvalidArgument, "placement: nodes of {} ranks, the group has {}",
                      nodes, placement.ranks);
  }
  for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
    const LayerSlots& slots = placement.slots[layer];
    if (slots.size() != placement.ranks) {
      return make_error(ErrorCode::kInvalidArgument,
                        "placement: layer {} has slots for {} ranks, the group has {}", layer,
                        slots.size(), placement.ranks);
    }
    const Status covers = check_covers(slots, placement.experts);
    if (covers.ok()) continue;
    return make_error(covers.error().code, "layer {} {}", layer, covers.error().message);
  }
  return {};
}

std::vector<std::vector<SlotAddress>> slots_of_experts(const ComputePlacement& placement,
                                                       uint32_t layer) {
  std::vector<std::vector<SlotAddress>> addresses(placement.experts);
  for (uint32_t rank = 0; rank < placement.ranks; ++rank) {
    const std::vector<uint32_t>& slots = placement.slots[layer][rank];
    for (uint32_t slot = 0; slot < slots.size(); ++slot) {
      addresses[slots[slot]].push_back({rank, slot});
    }
  }
  return addresses;
}

std::vector<std::vector<uint32_t>> holders_of_experts(const ComputePlacement& placement,
                                                      uint32_t layer) {
  return holders(placement.slots.at(layer), placement.experts);
}

std::vector<uint32_t> experts_of_rank(const ComputePlacement& placement, uint32_t layer,
                                      uint32_t rank) {
  std::vector<uint32_t> experts = placement.slots.at(layer).at(rank);
  std::ranges::sort(experts);
  const auto twice = std::ranges::unique(experts);
  experts.erase(twice.begin(), twice.end());
  return experts;
}

bool has_replicas(const ComputePlacement& placement) {
  for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
    for (const auto& ranks : holders_of_experts(placement, layer)) {
      if (ranks.size() > 1) return true;
    }
  }
  return false;
}

}  // namespace moetrain
