// Where a range of a unit is cut before it is encoded: each piece becomes a fragment of its own.
#pragma once

#include <vector>

#include "formats/codec.h"
#include "formats/plan.h"
#include "formats/unit.h"

namespace ckptd {

struct Piece {
  uint64_t offset = 0;  // in the unit
  uint64_t length = 0;
  ckpt::Codec codec = ckpt::Codec::kZstd;
  bool operator==(const Piece&) const = default;
};

// Ascending, covering the range. A piece has the planes of the tensor that it begins in; it ends
// where elements of another size begin, unless it would be too short for that to pay, or where it
// is as long as an encoded fragment may be. Gaps between tensors belong to the tensor before.
std::vector<Piece> cut_pieces(const ckpt::UnitSpec& unit, const ckpt::UnitRange& range);

}  // namespace ckptd
