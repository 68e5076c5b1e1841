// Which fragments of a slab may be on the disk already, and what is to be read to know it. Pure.
//
// A fragment of which an earlier version of its unit has exactly the range, with the same CRC32C,
// is a candidate. That is a hint: whether the bytes are the same is for Comparer to see.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "formats/base/crc32c.h"
#include "formats/segment.h"

namespace ckptd {

struct SameCandidate {
  size_t fragment = 0;                // which one of the slab
  std::vector<FragmentPlace> places;  // ascending, together exactly its range

  bool lies_in(const auto& extent) const {
    return std::ranges::any_of(places, [&](const FragmentPlace& place) {
      return extent.holds(place) || (place.base && extent.holds(base_of(place)));
    });
  }
};

// An extent that some of these places lie in, and what the journal says of its header: all of it
// but its table of fragments, which its CRC32C answers for.
struct SameExtent {
  ckpt::ExtentHeader expected;
  uint32_t header_bytes = 0;
  uint32_t header_crc32c = 0;
  bool holds(const FragmentPlace& place) const {
    return place.segment == expected.segment && place.extent_offset == expected.offset;
  }
};

// Those of `pieces`, ascending by offset and apart, that together are this range of the unit with
// this CRC32C; empty: they are not.
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

// A stretch of a segment that is read in one go, in whole blocks, and what of it is compared.
struct SameRead {
  struct Part {
    size_t candidate = 0;
    size_t place = 0;   // of the candidate's
    uint64_t from = 0;  // in what is stored there; 0 where that is encoded
    uint64_t bytes = 0;
    bool base = false;  // of the place's base
    bool operator==(const Part&) const = default;
    FragmentPlace of(const SameCandidate& whose) const {
      return base ? base_of(whose.places[place]) : whose.places[place];
    }
  };
  ckpt::SegmentId segment = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  std::vector<Part> parts;
  std::vector<size_t> extents = {};  // whose headers lie in it
  bool operator==(const SameRead&) const = default;
};

struct SamePlanLimits {
  uint64_t read_bytes_max = 0;  // of one read: a multiple of a block, and more than what is encoded
                                // of a fragment and two blocks
  uint64_t gap_bytes_max = 0;   // that are read along rather than passed over
  uint64_t compared_bytes_min = 0;  // for which a read is worth its while
};

struct SamePlan {
  std::vector<SameRead> reads;    // in the order of the disk; neighbours are read together
  std::vector<size_t> scattered;  // candidates that would take too many reads, or a header too
                                  // large for one: none is planned for them. Ascending
};
// Every stored byte of the other candidates is read once, and the header of each of their extents.
SamePlan plan_same(const std::vector<SameCandidate>& candidates,
                   const std::vector<SameExtent>& extents, const SamePlanLimits& limits);

}  // namespace ckptd
