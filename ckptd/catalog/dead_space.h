// Private to this folder: which blocks of segments a commit, or what is left of it, holds.
#pragma once

#include <vector>

#include "ckptd/catalog/catalog.h"

namespace ckptd {

// Ascending, apart, whole blocks.
using SpaceRanges = std::vector<SpaceRange>;

// In order, those that touch as one.
SpaceRanges merged(SpaceRanges ranges);

// The extents from their headers to the end of their padded payloads.
SpaceRanges whole_extents(const std::vector<ckpt::fb::ExtentT>& extents);

// Every block that has a byte of these fragments, and the headers of the extents they lie in: as
// long as something in an extent is live its header says so.
SpaceRanges blocks_of(const std::vector<ckpt::fb::ExtentT>& extents,
                      const std::vector<FragmentPlace>& places);

// What of `ranges` lies in none of `others`.
SpaceRanges without(const SpaceRanges& ranges, const SpaceRanges& others);

// What of `ranges` lies in `range`.
SpaceRanges within(const SpaceRanges& ranges, const SpaceRange& range);

// Those extents that one of the fragments lies in.
std::vector<ckpt::fb::ExtentT> extents_of(const std::vector<ckpt::fb::ExtentT>& extents,
                                          const std::vector<FragmentPlace>& places);

}  // namespace ckptd
