// Private to this folder: what one record changes about the space that commits hold.
//
// An extent is of the commit that wrote it, which holds all of it. Later commits of the run may
// have fragments whose bytes lie in it (Extent in records.fbs): they hold the blocks of those, and
// the header; so does the writer of its units that are left, once it is deleted. A block is dead
// once no commit holds it. Who holds a part of an extent is found by its place, with that part
// (keys.h): what goes costs one seek for each extent, and no look at the versions of others.
#pragma once

#include <map>
#include <span>

#include "ckptd/catalog/catalog_impl.h"
#include "ckptd/catalog/commit_places.h"
#include "ckptd/catalog/dead_space.h"

namespace ckptd {

class SpaceLedger {
 public:
  SpaceLedger(const Catalog::Impl& catalog, uint64_t sequence, Change& change)
      : catalog_(catalog), sequence_(sequence), change_(change) {}

  void take(const values::CommitValue& commit, const PlacesByUnit& units);
  // The blocks that it holds, not any more from now on: of a deleted commit those of the units that
  // were left.
  SpaceRanges let_go(const values::CommitValue& commit);
  // It has let go of `held`, and holds what its units need; `commit` keeps these extents.
  void shrink(values::CommitValue& commit, const SpaceRanges& held);
  // Its extents `from`, which nobody else has anything of, give way to `to`, with `places` of it.
  void move(values::CommitValue& commit, const std::vector<ckpt::fb::ExtentT>& from,
            const std::vector<ckpt::fb::ExtentT>& to, const std::vector<FragmentPlace>& places);
  // All that it holds.
  void give_up(const values::CommitValue& commit);
  // All that a run holds: nobody else has anything of it. The keys of its commits go with it.
  void give_up_run(std::span<const values::CommitValue> commits);
  // Puts the counts of extents. Last, once.
  void finish();

 private:
  std::vector<FragmentPlace> places_of(const CommitInfo& info) const;
  // Of these blocks of its extents those that no other commit holds.
  SpaceRanges held_by_nobody_else(const values::CommitValue& commit, SpaceRanges blocks) const;
  SpaceRanges without_parts_of_others(const ckpt::SnapshotKey& key, const ckpt::fb::ExtentT& extent,
                                      SpaceRanges blocks) const;
  SpaceRanges held_by(const values::CommitValue& commit) const;
  SpaceRanges part_held(const ckpt::SnapshotKey& key, const ckpt::fb::ExtentT& extent) const;
  void list_parts(const values::CommitValue& commit, const std::vector<FragmentPlace>& places);
  void unlist_parts(const values::CommitValue& commit);
  void put_dead(ckpt::RunId run, const SpaceRanges& dead);
  void count(const std::vector<ckpt::fb::ExtentT>& extents, int64_t by);

  const Catalog::Impl& catalog_;
  const uint64_t sequence_;
  Change& change_;
  std::map<ckpt::SegmentId, int64_t> live_extents_;  // how their counts change
};

}  // namespace ckptd
