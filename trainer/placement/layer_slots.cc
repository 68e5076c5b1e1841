#include "trainer/placement/layer_slots.h"

#include "formats/base/assert.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

Status check_covers(const LayerSlots& slots, uint32_t experts) {
  std::vector<bool> held(experts);
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    for (const uint32_t expert : slots[rank]) {
      if (expert >= experts) {
        return make_error(ErrorCode::kInvalidArgument,
                          "placement: rank {} holds expert {}, the layer has {}", rank, expert,
                          experts);
      }
      held[expert] = true;
    }
  }
  for (uint32_t expert = 0; expert < experts; ++expert) {
    if (held[expert]) continue;
    return make_error(ErrorCode::kInvalidArgument, "placement: no rank holds expert {}", expert);
  }
  return {};
}

std::vector<std::vector<uint32_t>> holders(const LayerSlots& slots, uint32_t experts) {
  std::vector<std::vector<uint32_t>> ranks_of(experts);
  for (uint32_t rank = 0; rank < slots.size(); ++rank) {
    for (const uint32_t expert : slots[rank]) {
      CKPT_ASSERT(expert < experts);
      std::vector<uint32_t>& ranks = ranks_of[expert];
      if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);
    }
  }
  return ranks_of;
}

}  // namespace moetrain
