#include "client/ctl/wanted_bytes.h"

#include <algorithm>

namespace ckptctl {

uint64_t place_of(const WantedBytes& piece, uint64_t index) {
  if (!piece.spread()) return piece.destination + index;
  const uint64_t at = piece.skip + index;
  return piece.destination + at / piece.run * piece.step + at % piece.run;
}

uint64_t bytes_before(const WantedBytes& piece, uint64_t place) {
  if (place <= piece.destination) return 0;
  uint64_t before = place - piece.destination;
  if (piece.spread()) {
    before = before / piece.step * piece.run + std::min(before % piece.step, piece.run);
  }
  return std::min(before - std::min(before, piece.skip), piece.length);
}

WantedBytes part_of(const WantedBytes& piece, uint64_t from, uint64_t length) {
  WantedBytes part = piece;
  part.offset += from;
  part.length = length;
  if (piece.spread()) {
    part.skip += from;
  } else {
    part.destination += from;
  }
  return part;
}

}  // namespace ckptctl
