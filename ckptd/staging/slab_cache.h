// SlabCache: index of the fragments in durable slabs. Part of the memory level; owns
// nothing.
#pragma once

#include <map>
#include <vector>

#include "ckptd/staging/staging.h"

namespace ckptd {

class SlabCache {
 public:
  struct Entry {
    ArenaId arena = 0;
    uint32_t slab = 0;
    ckpt::ExtentFragment fragment;
  };
  void add(const ckpt::SnapshotKey& snapshot, ArenaId arena, uint32_t slab,
           const std::vector<ckpt::ExtentFragment>& fragments);
  void remove(const ckpt::SnapshotKey& snapshot, ArenaId arena, uint32_t slab,
              const std::vector<ckpt::ExtentFragment>& fragments);
  // Fragments of the unit, as of the snapshot, that cover the whole range.
  std::vector<Entry> find(const ckpt::SnapshotKey& snapshot, ckpt::UnitId unit, uint64_t offset,
                          uint64_t length) const;

 private:
  std::map<std::pair<ckpt::SnapshotKey, ckpt::UnitId>, std::vector<Entry>> entries_;
};

}  // namespace ckptd
