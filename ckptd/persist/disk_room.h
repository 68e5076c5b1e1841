// DiskRoom: free space for the next snapshot on the store's disk, and the error messages for a lack
// of space. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ckptd/io/disk.h"
#include "formats/base/result.h"

namespace ckptd {

struct DiskRoom {
  Disk::Space space;
  uint64_t reserve_bytes = 0;   // disk_reserve: never used by snapshots
  uint64_t prepared_bytes = 0;  // preallocated in open segments, not yet used
  uint64_t promised_bytes = 0;  // to snapshots that have started
  bool journal_has_room = true;

  uint64_t available_bytes() const;
};

// The unmet demand: `needed_bytes` for a snapshot, or for its record in the journal.
struct DiskShortage {
  DiskRoom room;
  uint64_t needed_bytes = 0;
  bool of_journal = false;
};

// "disk full: No space left on device: ..." names the directory, its file system and the numbers.
std::string disk_full_cause(const DiskShortage& shortage);
// How to free space, as an imperative sentence.
std::string disk_full_remedy(const DiskRoom& room);
// kResourceExhausted with cause and remedy, as the user sees it.
ckpt::Error disk_full_error(const DiskShortage& shortage);
// The error of a write for which the file system had no space, with the same remedy. `unwritten`:
// kDiskFull or kJournalFull.
ckpt::Error disk_full_error(const DiskRoom& room, const ckpt::Error& error,
                            ckpt::ErrorDetail unwritten);
// An I/O error of the disk with its remedy; any other error as it is.
ckpt::Error disk_failed_error(const ckpt::Error& error);
// True for the errors that disk_full_error() makes.
bool is_disk_full(std::string_view message);

}  // namespace ckptd
