// Private to this folder: the effect of one record on the space that commits hold.
//
// An extent belongs to the commit that wrote it, which holds all of it. Later commits of the run
// may reference bytes in the extent (dedup; Extent in records.fbs). They hold the blocks of those
// bytes and the header. A deleted writer likewise holds only the blocks of its remaining units. A
// block is dead once no commit holds it. Holders of a part of an extent are listed under the place
// of the extent (keys.h): removing a commit costs one seek per extent, and reads no other versions.
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
  // The blocks that the commit holds; it loses them now. A deleted commit holds only the blocks of
  // its remaining units.
  SpaceRanges detach(const values::CommitValue& commit);
  // Keeps only the blocks that the commit's units need; `held` is the result of detach().
  void shrink(values::CommitValue& commit, const SpaceRanges& held);
  // Replaces the extents `from`, which no other commit references, by `to` with these fragments.
  void move(values::CommitValue& commit, const std::vector<ckpt::fb::ExtentT>& from,
            const std::vector<ckpt::fb::ExtentT>& to, const std::vector<FragmentPlace>& places);
  // Frees everything that the commit holds.
  void release(const values::CommitValue& commit);
  // Frees everything that a run holds; no other run shares it. The caller removes the run's keys.
  void release_run(std::span<const values::CommitValue> commits);
  // Writes the counts of live extents. Call this last, and once.
  void finish();

 private:
  std::vector<FragmentPlace> places_of(const CommitInfo& info) const;
  // The blocks among `blocks`, all in extents of `commit`, that no other commit holds.
  SpaceRanges exclusively_held(const values::CommitValue& commit, SpaceRanges blocks) const;
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
  std::map<ckpt::SegmentId, int64_t> live_extents_;  // changes of the counts
};

}  // namespace ckptd
