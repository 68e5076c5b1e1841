// ShortageWatch: the runs that found the disk full, and the space that their snapshots need, until
// the disk has that space. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "ckptd/persist/disk_room.h"
#include "formats/base/ids.h"

namespace ckptd {

class ShortageWatch {
 public:
  // A snapshot found the disk or the journal full. `needed_bytes` is the need of the whole
  // snapshot, because its reserved space is free again once it has failed.
  void note(const ckpt::SnapshotKey& snapshot, const DiskShortage& shortage);
  // A snapshot is durable. If it is later than the noted one, its run can save again.
  void found_room(const ckpt::SnapshotKey& snapshot);
  // Drops the noted needs of the run, or of all runs.
  void forget(ckpt::RunId run) { needs_.erase(run); }
  void forget();

  // The current shortage; nullopt: every noted run has room for its next snapshot. Also set while
  // there is no space at all. Drops runs that have room. `journal_lacks`: true if the journal has
  // less than this many bytes left.
  std::optional<DiskShortage> now(DiskRoom room,
                                  const std::function<bool(uint64_t)>& journal_lacks);
  // Calls of note() so far.
  uint64_t count() const { return count_; }

 private:
  struct Need {
    ckpt::SnapshotKey snapshot;
    uint64_t bytes = 0;  // on the disk
  };
  std::map<ckpt::RunId, Need> needs_;  // of the last snapshot of each run that found no room
  std::optional<uint64_t> journal_needed_bytes_;
  uint64_t count_ = 0;
};

}  // namespace ckptd
