// The end of a journal that is about to be cut, where no catalog can say whether it was durable.
//
// A torn write of the last batch, which any crash may leave, and damage to one that was
// acknowledged look alike. Segments may tell more: an extent of a snapshot that has no record lies
// there after both. So nothing is refused; what is cut is kept, and the snapshots are named.
// Blocking; at start.
#pragma once

#include <string>
#include <vector>

#include "ckptd/daemon_store.h"

namespace ckptd {

struct LostEnd {
  std::vector<ckpt::SnapshotKey> snapshots;  // that the journal does not list; ascending
  std::string kept;                          // the file that has the bytes; empty: no file has them
};
// Cuts the torn end of the journal. Without a catalog it first looks through what no extent of the
// journal lists; if snapshots lie there, the bytes that are cut are kept in a file beside the
// journal. On a disk too full for that file the cut comes first, which frees space. If even then
// there is no room, the bytes are not kept: a full disk must start, or nothing can be deleted.
Result<LostEnd> cut_end(Disk& disk, const RecoveredStore& store, bool no_catalog);
// The lost snapshots by name, without those that are commits after all. Once the runs of the
// journal are in the catalog; to be read as a whole (catalog/whole_read.h).
std::vector<std::string> names_of_lost(const LostEnd& lost, const Catalog& catalog);
// Logs a warning; nothing if there are no names.
void tell_lost_end(const LostEnd& lost, std::vector<std::string> names);

}  // namespace ckptd
