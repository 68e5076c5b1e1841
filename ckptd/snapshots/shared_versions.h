// SharedVersions: older versions whose extents one snapshot may reference, as bytes that need no
// write (dedup), or as bases of deltas. No prune removes them while the snapshot is open. Loop
// thread only.
#pragma once

#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/dedup/dedup_plan.h"
#include "ckptd/persist/persist.h"

namespace ckptd {

class SharedVersions {
 public:
  using Version = std::pair<ViewPoint, ckpt::UnitId>;

  // Protects the version until the snapshot is settled. False: these places cannot be referenced.
  bool hold(const Catalog& catalog, const UnitVersion& version,
            std::span<const FragmentPlace> places);
  const std::set<Version>& held() const { return held_; }

  // Expected headers of these extents, all of them of held versions.
  std::vector<DedupExtent> headers(const ckpt::base::Hash128& store,
                                   const ckpt::SnapshotKey& snapshot,
                                   const std::set<ExtentBegin>& places) const;

  // The piece of the unit is on disk there: it needs no write.
  void share(ckpt::UnitId unit, const FragmentPlace& place);
  // True if a piece of the extent was shared.
  bool shares(const ExtentBegin& extent) const { return !extents_.at(extent).fragments.empty(); }
  // The base of a piece that may become a delta, or of an existing delta that needs no write.
  void note_base(ckpt::UnitId unit, uint64_t offset, const BasePlace& base);
  const ckpt::WrittenBases& bases() const { return bases_; }

  // Before the commit: adds the earlier extents with shared bytes, or with bases of deltas, to the
  // snapshot's own.
  void list_extents(std::vector<WrittenExtent>& extents);

 private:
  std::set<Version> held_;
  std::set<ViewPoint> commits_;  // of the held versions
  // All extents of these commits, with the fragments that need no write.
  std::map<ExtentBegin, WrittenExtent> extents_;
  size_t fragments_ = 0;  // upper bound for their fragments
  ckpt::WrittenBases bases_;
};

}  // namespace ckptd
