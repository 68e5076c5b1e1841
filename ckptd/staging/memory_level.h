// MemoryLevel: the unit versions that exist only in memory, and the slab of each of their parts.
// Owns nothing; Staging keeps the slabs. Pure.
//
// A unit has at most one version here, its newest. A slab is wanted as long as it holds a part of
// some unit's version; calls that end this return the slabs that are no longer wanted.
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

  // Adds the slabs of a committed snapshot. Replaces older versions of a unit; if a newer version
  // is present, the added one is not wanted. Order: later lineage, then later step.
  std::vector<Slab> add(const ckpt::SnapshotKey& snapshot, const std::vector<Piece>& pieces);
  // These units have durable versions as of this snapshot: drops versions that are not newer.
  std::vector<Slab> supersede(const ckpt::SnapshotKey& snapshot,
                              const std::vector<ckpt::UnitId>& units);
  // The slab is needed for something else: drops every version with a part in it. The slab itself
  // is not returned.
  std::vector<Slab> evict(const Slab& slab);
  // Drops versions of the run that are not wanted.
  std::vector<Slab> keep(ckpt::RunId run,
                         const std::function<bool(const ckpt::SnapshotKey&)>& wanted);

  const Version* find(ckpt::RunId run, ckpt::UnitId unit) const;
  bool wants(const Slab& slab) const { return wanted_.contains(slab); }
  size_t versions() const { return versions_.size(); }

 private:
  using Versions = std::map<std::pair<ckpt::RunId, ckpt::UnitId>, Version>;
  Versions::iterator erase(Versions::iterator version, std::vector<Slab>& unwanted);

  Versions versions_;
  std::map<Slab, size_t> wanted_;  // number of version pieces in the slab, > 0
};

}  // namespace ckptd
