// Private to this folder: what one record changes about the space that commits hold.
#pragma once

#include <map>
#include <span>

#include "ckptd/catalog/catalog_impl.h"
#include "ckptd/catalog/dead_space.h"

namespace ckptd {

class SpaceLedger {
 public:
  SpaceLedger(const Catalog::Impl& catalog, uint64_t sequence, Change& change)
      : catalog_(catalog), sequence_(sequence), change_(change) {}

  // The blocks that it holds now: of a deleted commit those of the units that are left.
  SpaceRanges held_by(const values::CommitValue& commit) const;
  void take(const std::vector<ckpt::fb::ExtentT>& extents);
  // It held `held`, and holds from now on what its units need; `commit` keeps these extents.
  void shrink(values::CommitValue& commit, const SpaceRanges& held);
  // All that these hold. Once for a record.
  void give_up(std::span<const values::CommitValue> commits);
  // Puts the counts of extents. Last, once.
  void finish();

 private:
  std::vector<FragmentPlace> places_of(const CommitInfo& info) const;
  void put_dead(ckpt::RunId run, const SpaceRanges& dead);
  void count(const std::vector<ckpt::fb::ExtentT>& extents, int64_t by);

  const Catalog::Impl& catalog_;
  const uint64_t sequence_;
  Change& change_;
  std::map<ckpt::SegmentId, int64_t> live_extents_;  // how their counts change
};

}  // namespace ckptd
