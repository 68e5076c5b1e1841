// Cuts a range of a unit before it is encoded: each piece becomes its own fragment.
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

// Ascending, covering the range. A piece has the byte planes of the tensor at its start. It ends
// where the element size changes, unless it would be too short to pay off, or at the maximum length
// of an encoded fragment. Gaps between tensors belong to the tensor before.
std::vector<Piece> cut_pieces(const ckpt::UnitSpec& unit, const ckpt::UnitRange& range);

}  // namespace ckptd
