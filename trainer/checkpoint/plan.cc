#include "trainer/checkpoint/plan.h"

#include <algorithm>
#include <numeric>

#include "trainer/checkpoint/unit_ranges.h"

namespace moetrain {

namespace {

// Each rank's ranges of a sharded expert's unit.
std::vector<HeldPart> parts_of(const StateUnit& unit, const Ownership& ownership) {
  std::vector<HeldPart> parts;
  for (uint32_t rank = 0; rank < ownership.ranks(); ++rank) {
    for (const UnitRange& range : held_ranges(unit, ownership, rank)) {
      parts.push_back({rank, range.offset, range.length});
    }
  }
  return parts;
}

}  // namespace

std::vector<ckpt_fragment> snapshot_plan(const std::vector<StateUnit>& units,
                                         const std::vector<uint32_t>& unit_ids,
                                         const Ownership& ownership, DenseSharding dense) {
  const bool sharded = ownership.state() == ExpertState::kSharded;
  std::vector<ShareUnit> wanted;
  for (const uint32_t id : unit_ids) {
    const StateUnit& unit = units.at(id);
    ShareUnit& share_unit = wanted.emplace_back(ShareUnit{unit.bytes, {}});
    if (id == kTrainerUnit) share_unit.holders = {0};
    if (unit.expert && sharded) share_unit.parts = parts_of(unit, ownership);
    if (unit.expert && !sharded) share_unit.holders = ownership.holders(*unit.layer, *unit.expert);
  }
  std::vector<ckpt_fragment> plan;
  for (const Share& share : share_units(wanted, ownership.ranks(), dense)) {
    plan.push_back({share.rank, unit_ids[share.unit], share.offset, share.length});
  }
  return plan;
}

uint64_t largest_share(const std::vector<StateUnit>& units, const Ownership& ownership,
                       DenseSharding dense) {
  const auto full = snapshot_plan(units, all_units(units), ownership, dense);
  uint64_t most = 0;
  for (uint32_t rank = 0; rank < ownership.ranks(); ++rank) {
    most = std::max(most, bytes_of_rank(full, rank));
  }
  if (dense != DenseSharding::kAdaptive) return most;
  // With fewer experts whole units may be dealt out otherwise: at most one of them more.
  uint64_t largest = 0;
  for (const StateUnit& unit : units) largest = std::max(largest, unit.expert ? 0 : unit.bytes);
  return most + largest;
}

std::vector<uint32_t> all_units(const std::vector<StateUnit>& units) {
  std::vector<uint32_t> ids(units.size());
  std::iota(ids.begin(), ids.end(), 0u);
  return ids;
}

std::vector<uint32_t> units_of_rank(const std::vector<StateUnit>& units, const Ownership& ownership,
                                    uint32_t rank) {
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < units.size(); ++id) {
    const StateUnit& unit = units[id];
    if (!unit.expert || ownership.holds(rank, *unit.layer, *unit.expert)) ids.push_back(id);
  }
  return ids;
}

ShareSummary bytes_by_rank(const std::vector<ckpt_fragment>& plan, uint32_t ranks) {
  std::vector<Share> shares;
  shares.reserve(plan.size());
  for (const ckpt_fragment& fragment : plan) {
    shares.push_back({fragment.unit, fragment.rank, fragment.offset, fragment.length});
  }
  return summarise(shares, ranks);
}

uint64_t bytes_of_rank(const std::vector<ckpt_fragment>& plan, uint32_t rank) {
  uint64_t bytes = 0;
  for (const ckpt_fragment& fragment : plan) {
    if (fragment.rank == rank) bytes += fragment.length;
  }
  return bytes;
}

}  // namespace moetrain
