// A torn journal end before its truncation, if no catalog can say whether the end was durable.
//
// A torn write of the last batch, which any crash may leave, and damage to an acknowledged batch
// look alike. In both cases segments may hold extents of snapshots without a record. So startup
// is not refused: the truncated bytes are kept, and the snapshots are named. Blocking; at
// startup.
#pragma once

#include <string>
#include <vector>

#include "ckptd/history/recovered_store.h"

namespace ckptd {

struct LostEnd {
  std::vector<ckpt::SnapshotKey> snapshots;  // without a journal record; ascending
  std::string kept;                          // file with the truncated bytes; empty: none
};
// Truncates the torn end of the journal. Without a catalog it first searches the space outside the
// journal's extents. If snapshots are there, the truncated bytes are kept in a file beside the
// journal. If the disk is too full for that file, truncates first, which frees space. If there is
// still no room, the bytes are lost: a full disk must start, or nothing can be deleted.
Result<LostEnd> cut_end(Disk& disk, const RecoveredStore& store, bool no_catalog);
// The lost snapshots by name, without those that turn out to be commits. Call this once the
// journal's runs are in the catalog, and read as a whole (catalog/whole_read.h).
std::vector<std::string> names_of_lost(const LostEnd& lost, const Catalog& catalog);
// Tells of these names, for the log and the health; empty if there are none.
std::string lost_end_text(const LostEnd& lost, std::vector<std::string> names);
// To be said with that text.
inline constexpr char kLostEndRemedy[] =
    "copy the data directory before the next start, if one of them should be there";

}  // namespace ckptd
