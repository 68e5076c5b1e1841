#include "trainer/placement/ownership.h"

#include <algorithm>
#include <numeric>

#include "formats/base/assert.h"

namespace moetrain {

ElementRange part_of(uint64_t elements, uint32_t n, uint32_t parts) {
  CKPT_ASSERT(n < parts);
  return {elements * n / parts, elements * (n + uint64_t{1}) / parts};
}

Ownership Ownership::replicated(const ComputePlacement& placement) {
  Ownership ownership;
  ownership.ranks_ = placement.ranks;
  ownership.layers_ = placement.layers();
  ownership.experts_ = placement.experts;
  ownership.holders_.reserve(placement.layers());
  for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
    ownership.holders_.push_back(holders_of_experts(placement, layer));
  }
  return ownership;
}

Ownership Ownership::sharded(uint32_t layers, uint32_t experts, uint32_t ranks) {
  Ownership ownership;
  ownership.state_ = ExpertState::kSharded;
  ownership.ranks_ = ranks;
  ownership.layers_ = layers;
  ownership.experts_ = experts;
  return ownership;
}

std::vector<uint32_t> Ownership::holders(uint32_t layer, uint32_t expert) const {
  CKPT_ASSERT(layer < layers_ && expert < experts_);
  if (state_ == ExpertState::kReplicated) return holders_[layer][expert];
  std::vector<uint32_t> all(ranks_);
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

bool Ownership::holds(uint32_t rank, uint32_t layer, uint32_t expert) const {
  CKPT_ASSERT(rank < ranks_ && layer < layers_ && expert < experts_);
  return state_ == ExpertState::kSharded ||
         std::ranges::binary_search(holders_[layer][expert], rank);
}

ElementRange Ownership::held(uint32_t rank, uint32_t layer, uint32_t expert,
                             uint64_t elements) const {
  if (!holds(rank, layer, expert)) return {};
  return state_ == ExpertState::kSharded ? part_of(elements, rank, ranks_)
                                         : ElementRange{0, elements};
}

ElementRange Ownership::counted(uint32_t rank, uint32_t layer, uint32_t expert,
                                uint64_t elements) const {
  const bool acts = state_ == ExpertState::kSharded || holders_[layer][expert].front() == rank;
  return acts ? held(rank, layer, expert, elements) : ElementRange{};
}

Ownership make_ownership(ExpertState state, const ComputePlacement& placement) {
  return state == ExpertState::kReplicated
             ? Ownership::replicated(placement)
             : Ownership::sharded(placement.layers(), placement.experts, placement.ranks);
}

}  // namespace moetrain
