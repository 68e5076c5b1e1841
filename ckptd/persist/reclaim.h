// What earlier starts preallocated and never used, or used for snapshots that nobody finished,
// given back to the disk at the next start.
#pragma once

#include <map>
#include <vector>

#include "ckptd/persist/persist.h"

namespace ckptd {

// Extents that the journal lists, by segment, in any order.
using ListedExtents = std::map<ckpt::SegmentId, std::vector<ExtentPlace>>;

struct Reclaimed {
  std::vector<ExtentPlace> left;  // stretches between listed extents that have bytes, for gc
  bool complete = true;           // false: a segment could not be read, cut or removed
};

// Segments are cut after their last listed extent; files without one are removed (each is logged).
// What the journal does not list is dead space, whatever it holds. A segment that cannot be read or
// cut is left to the next start, with a warning. Blocking; before any segment is opened.
Result<Reclaimed> reclaim_unlisted(Disk& disk, ListedExtents listed);

}  // namespace ckptd
