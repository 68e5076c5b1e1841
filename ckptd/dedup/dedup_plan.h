// Fragments of a slab that may already be on disk, and the reads that verify it. Pure.
//
// A fragment is a candidate if an earlier version of its unit has exactly this range with the same
// CRC32C. That is only a hint: Comparer checks whether the bytes are the same.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "formats/base/crc32c.h"
#include "formats/segment.h"

namespace ckptd {

struct DedupCandidate {
  size_t fragment = 0;                // index in the slab
  std::vector<FragmentPlace> places;  // ascending, together exactly its range

  bool lies_in(const auto& extent) const {
    return std::ranges::any_of(places, [&](const FragmentPlace& place) {
      return extent.holds(place) || (place.base && extent.holds(base_of(place)));
    });
  }
};

// An extent of some of these places, and its header according to the journal: everything except its
// table of fragments, which its CRC32C covers.
struct DedupExtent {
  ckpt::ExtentHeader expected;
  uint32_t header_bytes = 0;
  uint32_t header_crc32c = 0;
  bool holds(const FragmentPlace& place) const {
    return place.segment == expected.segment && place.extent_offset == expected.offset;
  }
};

// The consecutive `pieces` (ascending by offset, disjoint) that are exactly this range of the unit
// with this CRC32C; empty: there are none.
template <typename Piece>
std::span<const Piece> exact_cover(const std::vector<Piece>& pieces, uint64_t offset,
                                   uint64_t length, uint32_t crc32c) {
  const auto first =
      std::lower_bound(pieces.begin(), pieces.end(), offset,
                       [](const Piece& piece, uint64_t at) { return piece.offset < at; });
  uint64_t covered = 0;
  auto end = first;
  while (end != pieces.end() && covered < length && end->offset == offset + covered) {
    covered += end->length;
    ++end;
  }
  if (covered != length || first == end) return {};
  uint32_t crc = first->crc32c;
  for (auto piece = first + 1; piece != end; ++piece) {
    crc = ckpt::base::crc32c_combine(crc, piece->crc32c, piece->length);
  }
  if (crc != crc32c) return {};
  return {first, end};
}

// A range of a segment that is read at once, in whole blocks, and the parts to compare.
struct DedupRead {
  struct Part {
    size_t candidate = 0;
    size_t place = 0;   // index in the candidate
    uint64_t from = 0;  // in the stored bytes; 0 if encoded
    uint64_t bytes = 0;
    bool base = false;  // the base of the place
    bool operator==(const Part&) const = default;
    FragmentPlace of(const DedupCandidate& source) const {
      return base ? base_of(source.places[place]) : source.places[place];
    }
  };
  ckpt::SegmentId segment = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  std::vector<Part> parts;
  std::vector<size_t> extents = {};  // with headers in this range
  bool operator==(const DedupRead&) const = default;
};

struct DedupPlanLimits {
  uint64_t read_bytes_max = 0;  // of one read: a multiple of a block, and larger than an encoded
                                // fragment plus two blocks
  uint64_t gap_bytes_max = 0;   // largest gap that is read rather than skipped
  uint64_t compared_bytes_min = 0;  // minimum that makes a read worthwhile
};

struct DedupPlan {
  std::vector<DedupRead> reads;   // in disk order; neighbors are read together
  std::vector<size_t> scattered;  // candidates that would take too many reads, or have a header too
                                  // large for one: not planned. Ascending
};
// Reads each stored byte of the other candidates once, and the header of each of their extents.
DedupPlan plan_dedup(const std::vector<DedupCandidate>& candidates,
                     const std::vector<DedupExtent>& extents, const DedupPlanLimits& limits);

}  // namespace ckptd
