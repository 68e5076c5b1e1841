// Preconditions of pack.h's tables, for the asserts of every backend.
#pragma once

#include "kernels/pack.h"

namespace ckpt::kernels {

// True if the runs are ascending and do not overlap. Empty runs may be anywhere.
template <typename Run>
bool in_order(std::span<const Run> runs) {
  uint64_t end = 0;
  for (const Run& run : runs) {
    if (run.bytes == 0) continue;
    if (run.offset < end) return false;
    end = run.offset + run.bytes;
  }
  return true;
}

// True if every byte of a piece lies in some range; both lists are in order.
template <typename Piece>
bool covered(std::span<const Piece> pieces, std::span<const PackRange> ranges) {
  size_t next = 0;
  for (const Piece& piece : pieces) {
    const uint64_t end = piece.offset + piece.bytes;
    for (uint64_t at = piece.offset; at < end;) {
      while (next < ranges.size() && ranges[next].offset + ranges[next].bytes <= at) ++next;
      if (next == ranges.size() || ranges[next].offset > at) return false;
      at = ranges[next].offset + ranges[next].bytes;
    }
  }
  return true;
}

}  // namespace ckpt::kernels
