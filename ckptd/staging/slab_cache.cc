#include "ckptd/staging/slab_cache.h"

#include <algorithm>

#include "formats/base/checked.h"

namespace ckptd {

void SlabCache::add(const ckpt::SnapshotKey& snapshot, ArenaId arena, uint32_t slab,
                    const std::vector<ckpt::ExtentFragment>& fragments) {
  for (const ckpt::ExtentFragment& fragment : fragments) {
    entries_[{snapshot, fragment.unit}].push_back({arena, slab, fragment});
  }
}

void SlabCache::remove(const ckpt::SnapshotKey& snapshot, ArenaId arena, uint32_t slab,
                       const std::vector<ckpt::ExtentFragment>& fragments) {
  for (const ckpt::ExtentFragment& fragment : fragments) {
    const auto found = entries_.find({snapshot, fragment.unit});
    if (found == entries_.end()) continue;
    std::erase_if(found->second,
                  [&](const Entry& entry) { return entry.arena == arena && entry.slab == slab; });
    if (found->second.empty()) entries_.erase(found);
  }
}

std::vector<SlabCache::Entry> SlabCache::find(const ckpt::SnapshotKey& snapshot, ckpt::UnitId unit,
                                              uint64_t offset, uint64_t length) const {
  std::vector<Entry> covering;
  const auto found = entries_.find({snapshot, unit});
  if (found == entries_.end()) return covering;
  for (const Entry& entry : found->second) {
    const ckpt::ExtentFragment& fragment = entry.fragment;
    if (offset < fragment.offset) continue;
    if (ckpt::base::range_fits(offset - fragment.offset, length, fragment.length)) {
      covering.push_back(entry);
    }
  }
  return covering;
}

}  // namespace ckptd
