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

// Truncates segments after their last listed extent; removes files without one (logs each). A
// segment that cannot be read or truncated is left to the next startup, with a warning. Blocking;
// call this before any segment is opened.
Result<Reclaimed> reclaim_unlisted(Disk& disk, ListedExtents listed);

}  // namespace ckptd
