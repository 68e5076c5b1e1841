// Gives back to the disk, at a start, the space in segments that no journal record lists: it was
// preallocated and never used, or holds snapshots that nobody finished.
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
// A segment that cannot be read or cut is left to the next start, with a warning. Blocking; to be
// called before any segment is opened.
Result<Reclaimed> reclaim_unlisted(Disk& disk, ListedExtents listed);

}  // namespace ckptd
