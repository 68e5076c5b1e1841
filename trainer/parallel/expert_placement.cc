#include "trainer/parallel/expert_placement.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

Result<ExpertPlacement> static_placement(uint32_t layers, uint32_t experts, uint32_t ranks) {
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
  ExpertPlacement placement{ranks, experts, {}};
  placement.slots.assign(layers, layer);
  return placement;
}

Status validate(const ExpertPlacement& placement) {
  for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
    const auto& ranks = placement.slots[layer];
    if (ranks.size() != placement.ranks) {
      return make_error(ErrorCode::kInvalidArgument,
                        "placement: layer {} has slots for {} ranks, the group has {}", layer,
                        ranks.size(), placement.ranks);
    }
    std::vector<uint32_t> copies(placement.experts, 0);
    for (const auto& slots : ranks) {
      for (const uint32_t expert : slots) {
        if (expert >= placement.experts) {
          return make_error(ErrorCode::kInvalidArgument,
                            "placement: layer {} names expert {}, it has {} experts", layer, expert,
                            placement.experts);
        }
        ++copies[expert];
      }
    }
    for (uint32_t expert = 0; expert < placement.experts; ++expert) {
      if (copies[expert] == 1) continue;
      return make_error(ErrorCode::kInvalidArgument,
                        "placement: layer {} expert {} has {} slots, must have one", layer, expert,
                        copies[expert]);
    }
  }
  return {};
}

std::vector<SlotAddress> slot_addresses(const ExpertPlacement& placement, uint32_t layer) {
  std::vector<SlotAddress> addresses(placement.experts);
  for (uint32_t rank = 0; rank < placement.ranks; ++rank) {
    const auto& slots = placement.slots[layer][rank];
    for (uint32_t slot = 0; slot < slots.size(); ++slot) addresses[slots[slot]] = {rank, slot};
  }
  return addresses;
}

}  // namespace moetrain
