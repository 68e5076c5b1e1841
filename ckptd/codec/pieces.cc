#include "ckptd/codec/pieces.h"

#include <algorithm>

#include "ckptd/limits.h"

namespace ckptd {
namespace {

using Tensor = std::vector<ckpt::TensorSpec>::const_iterator;

// The first tensor at or after `from` with another element size.
Tensor end_of_size(const ckpt::UnitSpec& unit, uint64_t from, uint64_t element_bytes) {
  const auto first =
      std::partition_point(unit.tensors.begin(), unit.tensors.end(),
                           [from](const ckpt::TensorSpec& tensor) { return tensor.offset < from; });
  return std::find_if(first, unit.tensors.end(), [element_bytes](const ckpt::TensorSpec& tensor) {
    return ckpt::dtype_bytes(tensor.dtype) != element_bytes;
  });
}

}  // namespace

std::vector<Piece> cut_pieces(const ckpt::UnitSpec& unit, const ckpt::UnitRange& range) {
  const uint64_t end = range.offset + range.length;
  std::vector<Piece> pieces;
  pieces.reserve(range.length / ckpt::kEncodedFragmentBytesMax + 1);
  auto tensor = unit.tensors.begin();  // the first that begins after the piece
  for (uint64_t at = range.offset; at < end;) {
    while (tensor != unit.tensors.end() && tensor->offset <= at) ++tensor;
    const bool inside = tensor != unit.tensors.begin();
    const uint64_t element_bytes = inside ? ckpt::dtype_bytes(std::prev(tensor)->dtype) : 1;
    const uint64_t most = std::min(end, at + ckpt::kEncodedFragmentBytesMax);
    const Tensor other = end_of_size(unit, at + limits::kEncodedPieceBytesMin, element_bytes);
    const uint64_t to = other == unit.tensors.end() ? most : std::min(most, other->offset);
    pieces.push_back({at, to - at, ckpt::zstd_codec(element_bytes)});
    at = to;
  }
  return pieces;
}

}  // namespace ckptd
