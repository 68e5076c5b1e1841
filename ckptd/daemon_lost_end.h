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
  std::string kept;                          // the file that has the bytes; empty: there are none
};
// Looks through what no extent of the journal lists; if snapshots lie there, keeps the bytes of the
// journal's end in a file beside it. To be asked before they are cut.
Result<LostEnd> look_for_lost_end(Disk& disk, const RecoveredStore& store);
// Once the runs of the journal are in the catalog.
void tell_lost_end(const LostEnd& lost, const Catalog& catalog);

}  // namespace ckptd
