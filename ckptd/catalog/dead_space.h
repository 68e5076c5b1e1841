// Private to this folder: which blocks of segments a commit, or the rest of a deleted one, holds.
#pragma once

#include <vector>

#include "ckptd/catalog/catalog.h"

namespace ckptd {

// Ascending, disjoint, whole blocks.
using SpaceRanges = std::vector<SpaceRange>;

// Sorts the ranges and joins those that touch.
SpaceRanges merged(SpaceRanges ranges);

// The extents from their headers to the end of their padded payloads.
SpaceRanges whole_extents(const std::vector<ckpt::fb::ExtentT>& extents);

// Every block that has a byte of these fragments, and the headers of the extents they lie in: the
// header stays as long as anything in its extent is live.
SpaceRanges blocks_of(const std::vector<ckpt::fb::ExtentT>& extents,
                      const std::vector<FragmentPlace>& places);

// The parts of `ranges` that lie in none of `others`.
SpaceRanges without(const SpaceRanges& ranges, const SpaceRanges& others);

// The parts of `ranges` that lie in `range`.
SpaceRanges within(const SpaceRanges& ranges, const SpaceRange& range);

// The extents that hold at least one of the fragments.
std::vector<ckpt::fb::ExtentT> extents_of(const std::vector<ckpt::fb::ExtentT>& extents,
                                          const std::vector<FragmentPlace>& places);

}  // namespace ckptd
