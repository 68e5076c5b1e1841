// MemoryLevel: the versions of units that are only in memory, and which slab holds which part of
// which. It owns nothing; Staging keeps the slabs that are in it. Pure.
//
// A unit has at most one version here, its newest. A slab is wanted as long as it holds a part of
// some unit's version; the calls that end this return the slabs nobody wants any more.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "ckptd/staging/staging.h"

namespace ckptd {

class MemoryLevel {
 public:
  struct Slab {
    ArenaId arena = 0;
    uint32_t slab = 0;
    auto operator<=>(const Slab&) const = default;
  };
  struct Piece {
    Slab at;
    ckpt::ExtentFragment fragment;
  };
  struct Version {
    ckpt::SnapshotKey snapshot;
    std::vector<Piece> pieces;  // ascending by offset
  };

  // The slabs of a snapshot that was committed. An older version of a unit goes; a newer one stays,
  // and the one that is added is not wanted. Newer is a later lineage, then a later step.
  std::vector<Slab> add(const ckpt::SnapshotKey& snapshot, const std::vector<Piece>& pieces);
  // These units have versions elsewhere, as of this snapshot: what is not newer here goes.
  std::vector<Slab> supersede(const ckpt::SnapshotKey& snapshot,
                              const std::vector<ckpt::UnitId>& units);
  // The slab is wanted for something else: every version with a part in it goes. It is not among
  // those returned.
  std::vector<Slab> evict(const Slab& slab);
  // Versions of the run that are not to be kept go.
  std::vector<Slab> keep(ckpt::RunId run,
                         const std::function<bool(const ckpt::SnapshotKey&)>& wanted);

  const Version* find(ckpt::RunId run, ckpt::UnitId unit) const;
  bool wants(const Slab& slab) const { return wanted_.contains(slab); }
  size_t versions() const { return versions_.size(); }

 private:
  using Versions = std::map<std::pair<ckpt::RunId, ckpt::UnitId>, Version>;
  Versions::iterator erase(Versions::iterator version, std::vector<Slab>& unwanted);

  Versions versions_;
  std::map<Slab, size_t> wanted_;  // pieces of versions in it, > 0
};

}  // namespace ckptd
