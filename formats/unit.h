// Unit: the smallest piece of training state with a version of its own, and its schema.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/hash.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/dtype.h"

namespace ckpt {

// Unit names end up in error messages, metrics and RocksDB keys, so they are short.
inline constexpr size_t kUnitNameBytesMax = 255;
// Tensor names come from model files, which set no bound. This one keeps a message's list of units
// small against its frame.
inline constexpr size_t kTensorNameBytesMax = 128 << 10;
// Layer and expert numbers travel as signed 32-bit values, -1 meaning none.
inline constexpr uint32_t kUnitAttributeMax = (1u << 31) - 1;
inline constexpr size_t kTensorsPerUnitMax = 4096;
// PyTorch's own bound is 64.
inline constexpr size_t kTensorRankMax = 64;
// 8 TiB. 2^20 units of this size still add up without overflow.
inline constexpr uint64_t kUnitBytesMax = 1ull << 43;

// One tensor inside a unit. Bytes are row-major, little-endian, at `offset` in the unit.
struct TensorSpec {
  // UTF-8 without zero bytes, e.g. "model.layers.3.block_sparse_moe.experts.17.w1.weight".
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;  // empty: a scalar
  uint64_t offset = 0;          // bytes from the start of the unit
  bool operator==(const TensorSpec&) const = default;
};

// Bytes of the tensor: the bits of its elements / 8. An error names the tensor if the product
// overflows, or if elements that share bytes do not fill the last one.
Result<uint64_t> tensor_bytes(const TensorSpec& tensor);

enum class UnitPart : uint8_t { kNone = 0, kWeights = 1, kOptimizer = 2 };
std::string_view unit_part_name(UnitPart part);  // "", "weights", "optimizer"

// Names: 1 to 255 bytes of [A-Za-z0-9._%-], for example "layers.3.experts.17.weights".
struct UnitSpec {
  std::string name;
  std::optional<uint32_t> layer;
  std::optional<uint32_t> expert;
  UnitPart part = UnitPart::kNone;
  uint64_t bytes = 0;
  std::vector<TensorSpec> tensors;  // ascending, disjoint, inside [0, bytes)
  bool operator==(const UnitSpec&) const = default;
};

// True for 1 to 255 bytes of [A-Za-z0-9._%-].
bool is_unit_name(std::string_view name);

// Checks a unit that came from outside: its name, its size (a unit of no bytes would never show up
// in a commit), the bounds above, that tensor names are UTF-8 and differ, that the tensors are
// ascending, fit and do not overlap. The error names the unit and the tensor.
Status validate(const UnitSpec& unit);

// Daemons of store version 8 and older refuse to read a unit that needs more than they knew: a '%'
// in its name, a tensor name that is not short printable ASCII, or a later dtype.
bool readable_by_version_8(const UnitSpec& unit);

// How `given` differs from `known`, with both values: "tensor w: F32 [8, 4] instead of F32 [8, 2]".
// Empty: they are equal. The names of both units are the same.
std::string difference(const UnitSpec& known, const UnitSpec& given);

// Same hash <=> same units in the same order. Ranks compare it instead of the whole list.
base::Hash128 schema_hash(const std::vector<UnitSpec>& units);

// Run and tag names: 1 to 128 bytes of [A-Za-z0-9._-], not starting with '.' or '-'.
Status validate_name(std::string_view kind, std::string_view name);

}  // namespace ckpt
