// Startup: are the segment files there that hold the bytes of commits?
#pragma once

#include "ckptd/catalog/catalog.h"
#include "ckptd/history/recovered_store.h"
#include "ckptd/io/disk.h"

namespace ckptd {

// End of all extents in the segment that the journal lists.
uint64_t end_of_listed(const RecoveredStore& store, ckpt::SegmentId segment);

// True if the file of a segment with live bytes is missing, or ends before its last listed extent.
// Files that cannot be opened for another reason count as there. Fails if the catalog cannot be
// read. Blocking.
Result<bool> any_segment_is_lost(Disk& disk, const RecoveredStore& store, const Catalog& catalog);

}  // namespace ckptd
