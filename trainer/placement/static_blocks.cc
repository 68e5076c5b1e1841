#include "trainer/placement/static_blocks.h"

namespace moetrain {

std::vector<LayerSlots> plan_static(const PlacementRequest& request) {
  const uint64_t experts = request.experts();
  uint32_t blocks = 1;
  // N blocks always fit: there are at least as many slots as experts.
  while (request.ranks % blocks != 0 || (experts + blocks - 1) / blocks > request.slots_per_rank) {
    ++blocks;
  }
  LayerSlots slots(request.ranks);
  for (uint32_t rank = 0; rank < request.ranks; ++rank) {
    const uint64_t block = rank % blocks;
    for (uint64_t expert = block * experts / blocks; expert < (block + 1) * experts / blocks;
         ++expert) {
      slots[rank].push_back(static_cast<uint32_t>(expert));
    }
  }
  return std::vector<LayerSlots>(request.layers(), slots);
}

}  // namespace moetrain
