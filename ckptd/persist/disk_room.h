// DiskRoom: the space that the next snapshot can have on the store's disk, and the words that
// refuse one for lack of it. Pure.
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
  uint64_t promised_bytes = 0;  // to snapshots that have begun
  bool journal_has_room = true;

  uint64_t available_bytes() const;
};

// What lacked room: `needed_bytes` for a snapshot, or for its record in the journal.
struct DiskShortage {
  DiskRoom room;
  uint64_t needed_bytes = 0;
  bool of_journal = false;
};

// "disk full: No space left on device: ..." names the directory, its file system and the numbers.
std::string disk_full_cause(const DiskShortage& shortage);
// How to make room, as an imperative.
std::string disk_full_remedy(const DiskRoom& room);
// kResourceExhausted with both, as whoever is refused reads them.
ckpt::Error disk_full_error(const DiskShortage& shortage);
// The error of a write for which the file system had no space, with the same remedy.
ckpt::Error disk_full_error(const DiskRoom& room, const ckpt::Error& error);
// True for the errors that disk_full_error() makes.
bool is_disk_full(std::string_view message);

}  // namespace ckptd
