// Startup: reclaims space in segments that no journal record lists. Such space was preallocated and
// never used, or holds unfinished snapshots.
#pragma once

#include <map>
#include <vector>

#include "ckptd/persist/persist.h"

namespace ckptd {

// Extents that the journal lists, by segment, in any order.
using ListedExtents = std::map<ckpt::SegmentId, std::vector<ExtentPlace>>;

struct Reclaimed {
  std::vector<ExtentPlace> left;  // gaps between listed extents that have bytes, for gc
  bool complete = true;           // false: a segment could not be read, truncated or removed
};

// Truncates segments after their last listed extent; removes files without one (logs each). Changes
// no file that cannot be read, or whose header is not that of this segment of this store: it may
// hold the bytes of another segment, or be no segment. It gets a warning. An unlisted file whose
// first block is zeros is a new segment, and is removed. Blocking; call this before any segment is
// opened.
Result<Reclaimed> reclaim_unlisted(Disk& disk, const ckpt::base::Hash128& store,
                                   ListedExtents listed);

}  // namespace ckptd
