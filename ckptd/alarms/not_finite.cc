#include "ckptd/alarms/not_finite.h"

#include <algorithm>
#include <cstring>

#include "formats/blob.h"

namespace ckptd {
namespace {

using ckpt::ByteView;
using ckpt::DType;

// Elements of a 16-byte register, as GCC and clang vector types.
template <typename Word>
struct Lanes {
  typedef Word Vector __attribute__((vector_size(16)));
  static constexpr size_t kCount = sizeof(Vector) / sizeof(Word);
};

// All exponent bits set: NaN or infinite. Four registers at a time. Every lane counts separately,
// and is added to the total before its 16 bits could overflow.
template <typename Word, Word kExponent>
uint64_t count(ByteView bytes) {
  using Vector = typename Lanes<Word>::Vector;
  constexpr size_t kStride = 4 * Lanes<Word>::kCount;
  constexpr size_t kStridesPerSum = 4096;
  const Vector exponent = Vector{} + kExponent;
  const std::byte* at = bytes.data();
  size_t left = bytes.size() / sizeof(Word);
  uint64_t total = 0;
  while (left >= kStride) {
    const size_t strides = std::min(left / kStride, kStridesPerSum);
    Vector found{};
    for (size_t i = 0; i < strides; ++i, at += 4 * sizeof(Vector)) {
      // A true comparison is all ones, which is minus one.
      Vector bad{};
#pragma GCC unroll 4
      for (size_t word = 0; word < 4; ++word) {
        Vector words;
        std::memcpy(&words, at + word * sizeof words, sizeof words);
        bad += reinterpret_cast<Vector>((words & exponent) == exponent);
      }
      found -= bad;
    }
    for (size_t lane = 0; lane < Lanes<Word>::kCount; ++lane) total += found[lane];
    left -= strides * kStride;
  }
  for (; left > 0; --left, at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, at, sizeof word);
    total += (word & kExponent) == kExponent ? 1 : 0;
  }
  return total;
}

bool has_exponent(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

}  // namespace

uint64_t count_not_finite(DType dtype, ByteView elements) {
  switch (dtype) {
    case DType::kF16:
      return count<uint16_t, 0x7c00>(elements);
    case DType::kBF16:
      return count<uint16_t, 0x7f80>(elements);
    case DType::kF32:
      return count<uint32_t, 0x7f80'0000>(elements);
    case DType::kF64:
      return count<uint64_t, 0x7ff0'0000'0000'0000>(elements);
    default:
      return 0;
  }
}

void NotFiniteScan::check(const ckpt::ExtentFragment& fragment, ByteView bytes, uint64_t from,
                          uint64_t to) {
  if (ckpt::is_blob(fragment.unit)) return;  // its bytes have no known type
  const std::vector<ckpt::TensorSpec>& tensors = (*units_)[fragment.unit].tensors;
  // Offsets in the unit: `start` of the fragment; elements that end in (begin, end] are counted.
  const uint64_t start = fragment.offset;
  const uint64_t begin = start + from;
  const uint64_t end = start + to;
  auto tensor = std::upper_bound(
      tensors.begin(), tensors.end(), begin,
      [](uint64_t offset, const ckpt::TensorSpec& next) { return offset < next.offset; });
  if (tensor != tensors.begin()) --tensor;  // the tensor that `begin` may lie in
  for (; tensor != tensors.end() && tensor->offset < end; ++tensor) {
    const auto tensor_bytes = ckpt::tensor_bytes(*tensor);
    if (!has_exponent(tensor->dtype) || !tensor_bytes.ok()) continue;
    const uint64_t size = ckpt::dtype_bytes(tensor->dtype);
    uint64_t first = begin > tensor->offset ? (begin - tensor->offset) / size : 0;
    if (tensor->offset + first * size < start) ++first;
    const uint64_t last = std::min(end - tensor->offset, *tensor_bytes) / size;
    if (first >= last) continue;
    const uint64_t found = count_not_finite(
        tensor->dtype, bytes.subspan(tensor->offset + first * size - start, (last - first) * size));
    if (found > 0) found_[fragment.unit] += found;
  }
}

}  // namespace ckptd
