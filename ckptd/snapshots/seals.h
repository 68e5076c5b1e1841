// Seals: sealed slabs of open snapshots. Takes over their bytes, compares bytes that may already be
// on disk, and passes the slabs to Persist.
//
// After each accepted seal exactly one Ingest::written() follows, unless the snapshot has failed.
// Loop thread only. Callbacks of comparisons and writes end with Dedup::close() and
// Persist::close().
#pragma once

#include "ckptd/snapshots/begin_checks.h"
#include "ckptd/snapshots/dedup.h"
#include "ckptd/snapshots/deltas.h"
#include "ckptd/snapshots/newest_cache.h"
#include "ckptd/snapshots/open_state.h"

namespace ckptd {

class Seals {
 public:
  Seals(const SnapshotCore& core, const BeginChecks& checks, RunNewestCache& newest, Dedup& dedup,
        Deltas& deltas)
      : core_(core), checks_(checks), newest_(newest), dedup_(dedup), deltas_(deltas) {}

  void seal(Session& session, const ckpt::fb::SealSlabT& message);

 private:
  Result<StagedSlab> take_over(const Session& session, const ckpt::SnapshotKey& key,
                               const ckpt::fb::SealSlabT& message);
  void keep_or_write(ckpt::SessionId session, const ckpt::SnapshotKey& key, ckpt::Rank rank,
                     StagedSlab slab, bool memory_only);
  void keep(const ckpt::SnapshotKey& key, StagedSlab slab);
  void write(ckpt::SessionId session, const ckpt::SnapshotKey& key, ckpt::Rank rank,
             StagedSlab slab, const std::vector<bool>& left_out);

  const SnapshotCore& core_;
  const BeginChecks& checks_;
  RunNewestCache& newest_;
  Dedup& dedup_;
  Deltas& deltas_;
};

}  // namespace ckptd
