#include "trainer/checkpoint/plan.h"

#include "formats/base/assert.h"
#include "formats/base/checked.h"

namespace moetrain {

namespace {

// The owner of every expert, [layer][expert].
std::vector<std::vector<uint32_t>> owners(const ExpertPlacement& placement) {
  std::vector<std::vector<uint32_t>> ranks(placement.layers());
  for (uint32_t layer = 0; layer < placement.layers(); ++layer) {
    for (const SlotAddress& slot : slot_addresses(placement, layer)) {
      ranks[layer].push_back(slot.rank);
    }
  }
  return ranks;
}

void cut_evenly(uint32_t unit, uint64_t bytes, uint32_t ranks, std::vector<ckpt_fragment>& plan) {
  uint64_t begin = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const bool last = rank + 1 == ranks;
    const uint64_t end =
        last ? bytes : ckpt::base::align_down(bytes / ranks * (rank + 1), kDenseCutBytes);
    if (end > begin) plan.push_back({rank, unit, begin, end - begin});
    begin = end;
  }
}

}  // namespace

std::vector<ckpt_fragment> snapshot_plan(const std::vector<StateUnit>& units,
                                         const ExpertPlacement& placement) {
  const auto owner = owners(placement);
  std::vector<ckpt_fragment> plan;
  for (uint32_t id = 0; id < units.size(); ++id) {
    const StateUnit& unit = units[id];
    if (id == kTrainerUnit) {
      plan.push_back({0, id, 0, unit.bytes});
    } else if (unit.expert) {
      plan.push_back({owner.at(*unit.layer).at(*unit.expert), id, 0, unit.bytes});
    } else {
      cut_evenly(id, unit.bytes, placement.ranks, plan);
    }
  }
  return plan;
}

std::vector<uint32_t> units_of_rank(const std::vector<StateUnit>& units,
                                    const ExpertPlacement& placement, uint32_t rank) {
  const auto owner = owners(placement);
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < units.size(); ++id) {
    const StateUnit& unit = units[id];
    if (!unit.expert || owner.at(*unit.layer).at(*unit.expert) == rank) ids.push_back(id);
  }
  return ids;
}

uint64_t bytes_of_rank(const std::vector<ckpt_fragment>& plan, uint32_t rank) {
  uint64_t bytes = 0;
  for (const ckpt_fragment& fragment : plan) {
    if (fragment.rank == rank) bytes += fragment.length;
  }
  return bytes;
}

}  // namespace moetrain
