// RunNewestCache: the newest version of every unit of a run in one line of history. Read from the
// catalog once; each commit is added.
//
// The owner forgets a run whenever the run loses versions. The end of an epoch forgets it, too;
// snapshots of the ended epoch that look versions up later must not bring the cache back: see
// forget_if_ended(). Loop thread only.
#pragma once

#include <map>
#include <vector>

#include "ckptd/alarms/judge.h"
#include "ckptd/catalog/catalog.h"
#include "ckptd/dedup/newest_fragments.h"
#include "ckptd/persist/persist.h"

namespace ckptd {

class RunNewestCache {
 public:
  explicit RunNewestCache(const Catalog& catalog) : catalog_(catalog) {}

  // Newest versions in the snapshot's lineage, by UnitId: of at least `units` units, which the
  // snapshot has with its growth. Empty: the catalog cannot be read. Valid until the next call that
  // is not const.
  const NewestVersions& of(const ckpt::SnapshotKey& key, size_t units);
  // Cuts of the versions that have several pieces, as far as known. Precondition: of() has just
  // returned versions.
  NewestFragments& cuts(ckpt::RunId run) { return by_run_.at(run).cuts; }
  // The snapshot is committed with these sums and extents.
  void add(const ckpt::SnapshotKey& key, const SnapshotFacts& facts,
           const std::vector<WrittenExtent>& extents);
  void forget(ckpt::RunId run) { by_run_.erase(run); }

  void epoch_ended(ckpt::RunId run, ckpt::Epoch epoch);
  void epoch_opened(ckpt::RunId run) { ended_epochs_.erase(run); }
  // Forgets the run if the snapshot's epoch has ended: the end of the epoch could not drop the
  // versions that the snapshot looked up later.
  void forget_if_ended(const ckpt::SnapshotKey& key);

 private:
  struct RunNewest {
    ckpt::LineageId lineage = 0;
    NewestVersions versions;
    NewestFragments cuts;
  };
  void add_cuts(const ckpt::SnapshotKey& key, const std::vector<WrittenExtent>& extents,
                RunNewest& newest) const;

  const Catalog& catalog_;
  std::map<ckpt::RunId, RunNewest> by_run_;          // of runs with an epoch
  std::map<ckpt::RunId, ckpt::Epoch> ended_epochs_;  // the newest, of runs between two epochs
};

// Adds the sums of a snapshot, unless newer ones are known.
void add_versions(const SnapshotFacts& facts, ckpt::LineageId lineage, NewestVersions& versions);

// True if the fragment is its whole unit.
inline bool is_whole(const ckpt::ExtentFragment& fragment, const ckpt::UnitSpec& unit) {
  return fragment.offset == 0 && fragment.length == unit.bytes;
}

inline NewestFragments::Sum sum_of(const auto& piece) {
  return {.offset = piece.offset, .length = piece.length, .crc32c = piece.crc32c};
}

}  // namespace ckptd
