// Dedup: fragments whose bytes are already on disk are not written again; the commit references the
// existing extents.
//
// The bytes are compared first (dedup/comparer.h), and their versions are held until the commit is
// settled: no prune removes them, and commits are marked damaged only while the store is opened,
// before there is any snapshot. Loop thread only. close() ends the comparisons; their reads are
// over once it is idle().
#pragma once

#include <vector>

#include "ckptd/dedup/comparer.h"
#include "ckptd/snapshots/newest_cache.h"
#include "ckptd/snapshots/open_state.h"
#include "ckptd/snapshots/version_lookups.h"

namespace ckptd {

class Dedup {
 public:
  Dedup(const SnapshotNeeds& needs, RunNewestCache& newest, SnapshotCounters& counters);

  // Fragments whose bytes may be on disk. Their versions are held from here on. Returns none while
  // versions are being deleted, or while the index lacks such changes. If everything has changed,
  // the cost is only a few comparisons in memory per fragment.
  std::vector<DedupCandidate> find(const ckpt::SnapshotKey& key, OpenSnapshotState& open,
                                   const StagedSlab& slab);
  // `on_done` runs from the loop, unless the snapshot is abandoned.
  void compare(const ckpt::SnapshotKey& key, const OpenSnapshotState& open, StagedSlab slab,
               const std::vector<DedupCandidate>& candidates, Comparer::Done on_done);
  // Fragments of the slab that need no write; records their existing places for the commit.
  std::vector<bool> share(const ckpt::SnapshotKey& key, OpenSnapshotState& open,
                          const StagedSlab& slab, const std::vector<DedupCandidate>& candidates,
                          const std::vector<bool>& same);

  void tick(Time now) { comparer_.tick(now); }
  void abandon(const ckpt::SnapshotKey& key) { comparer_.abandon(key); }
  void close() { comparer_.abandon_all(); }
  bool idle() const { return comparer_.idle(); }
  uint64_t read_bytes() const { return comparer_.read_bytes(); }  // since startup

 private:
  bool reserve(const ckpt::SnapshotKey& key, const SharedVersions& shared,
               const std::vector<DedupCandidate>& candidates, const std::vector<bool>& left_out);

  const SnapshotNeeds& needs_;
  RunNewestCache& newest_;
  SnapshotCounters& counters_;
  Comparer comparer_;
};

}  // namespace ckptd
