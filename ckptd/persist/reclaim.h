// What earlier starts preallocated and never used, given back to the disk at the next start.
#pragma once

#include <map>

#include "ckptd/io/disk.h"

namespace ckptd {

// `listed_ends` says for each segment that the journal lists extents in where the last of them
// ends. Those files are cut there; files without a listed extent are removed (each is logged). What
// the journal does not list is dead space, whatever it holds. Blocking; before any segment is
// opened.
Status reclaim_unlisted(Disk& disk, const std::map<ckpt::SegmentId, uint64_t>& listed_ends);

}  // namespace ckptd
