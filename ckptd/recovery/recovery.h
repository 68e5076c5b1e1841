// recover(): brings the store to a usable state at startup, or returns why it cannot.
//
//   1. finish a salvage that an earlier startup began
//   2. read the journal; check that journal, segments and catalog belong together
//   3. from here on the store changes: settle the catalog, salvage a damaged journal, truncate a
//      torn end, replay into the catalog
//   4. record this startup; mark replayed commits damaged whose extents do not match; lift the
//      mark of commits whose extents match again
//   5. reclaim space that no record lists
//
// Returns a value and keeps nothing: the caller builds the daemon's modules from it. Blocking; loop
// thread; before any session exists. A crash at any step leaves a store that the next startup
// recovers. After an error the History must not be used, except to close it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/history/history.h"
#include "ckptd/io/disk.h"
#include "ckptd/loop/turn.h"
#include "ckptd/restore/segment_reader.h"

namespace ckptd {

struct RecoveredRun {
  ckpt::RunId id = 0;
  std::string name;
  ckpt::Epoch epoch = 0;             // the last one
  uint32_t rejoining = 0;            // ranks that may rejoin that epoch; 0: it is over, or unknown
  ckpt::LineageId lineage = 0;       // of that epoch
  std::vector<uint64_t> members;     // of an elastic epoch, by rank
  bool survivors_continued = false;  // of its elastic group, then or before
  std::optional<CommitInfo> newest;  // durable commit that views may use
};

struct Recovered {
  std::vector<RecoveredRun> runs;
  std::vector<ckpt::SnapshotKey> damaged;  // marked commits, by this start or earlier ones
  std::string lost_end;                    // lost_end_text(); empty: nothing was lost
  ckpt::RunId next_run = 1;                // higher than of any run, removed ones included
  ckpt::SegmentId next_segment = 1;        // higher than in any file or record
  uint64_t first_extent = 1;               // above all extent numbers of earlier startups
  std::vector<SpaceRange> unlisted;        // dead space between listed extents, for gc
  bool clean = true;                       // the last daemon closed the store; a new store is clean
  std::unique_ptr<SegmentReader> segments;
};

struct RecoveryNeeds {
  Disk& disk;
  History& history;  // newly constructed; afterwards open, and its catalog complete
  const Turn& turn;
  uint64_t random_seed = 0;  // of a new store's id; 0: from the operating system
};
Result<Recovered> recover(const RecoveryNeeds& needs);

}  // namespace ckptd
