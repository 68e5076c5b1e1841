// ShortageWatch: which runs found the disk full, and how much space their snapshots needed, until
// there is as much. Pure.
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
  // A snapshot found the disk full, or the journal. `needed_bytes` is the need of the whole
  // snapshot: space that it was given is free again once it has failed.
  void note(const ckpt::SnapshotKey& snapshot, const DiskShortage& shortage);
  // A snapshot is durable. If it is later than the one that was noted, its run can save again.
  void found_room(const ckpt::SnapshotKey& snapshot);
  // Drops what snapshots of the run needed, or snapshots of all runs.
  void forget(ckpt::RunId run) { needs_.erase(run); }
  void forget();

  // The present lack of room; nullopt: every run that was noted has room for its next snapshot. It
  // is set as well while there is no space at all. Runs that have room are forgotten.
  // `journal_lacks`: whether the journal has less than so many bytes left.
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
