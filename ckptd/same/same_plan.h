// Which fragments of a slab may be on the disk already, and what is to be read to know it. Pure.
//
// A fragment of which an earlier version of its unit has exactly the range, with the same CRC32C,
// is a candidate. That is a hint: whether the bytes are the same is for Comparer to see.
#pragma once

#include <span>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "formats/base/crc32c.h"
#include "formats/segment.h"

namespace ckptd {

struct SameCandidate {
  size_t fragment = 0;                // which one of the slab
  std::vector<FragmentPlace> places;  // ascending, together exactly its range
};

// Those of `pieces`, ascending by offset and apart, that together are this range of the unit with
// this CRC32C; empty: they are not.
template <typename Piece>
std::span<const Piece> exact_cover(const std::vector<Piece>& pieces, uint64_t offset,
                                   uint64_t length, uint32_t crc32c) {
  size_t first = 0;
  while (first < pieces.size() && pieces[first].offset < offset) ++first;
  uint64_t covered = 0;
  uint32_t crc = 0;
  size_t end = first;
  while (end < pieces.size() && covered < length && pieces[end].offset == offset + covered) {
    crc = ckpt::base::crc32c_combine(crc, pieces[end].crc32c, pieces[end].length);
    covered += pieces[end].length;
    ++end;
  }
  if (covered != length || crc != crc32c) return {};
  return std::span(pieces).subspan(first, end - first);
}

// A stretch of a segment that is read in one go, in whole blocks, and what of it is compared.
struct SameRead {
  struct Part {
    size_t candidate = 0;
    size_t place = 0;   // of the candidate's
    uint64_t from = 0;  // in what is stored there; 0 where that is encoded
    uint64_t bytes = 0;
    bool operator==(const Part&) const = default;
  };
  ckpt::SegmentId segment = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  std::vector<Part> parts;
  bool operator==(const SameRead&) const = default;
};
// In the order of the disk; neighbours are read together, at most `bytes_max` at a time (a multiple
// of a block, and more than an encoded fragment and two blocks).
std::vector<SameRead> plan_same_reads(const std::vector<SameCandidate>& candidates,
                                      uint64_t bytes_max);

}  // namespace ckptd
