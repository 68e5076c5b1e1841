// Element types of tensors, as safetensors names them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ckpt {

// The numbers are on disk and on the wire: never renumber.
enum class DType : uint8_t {
  kBool = 0,
  kU8 = 1,
  kI8 = 2,
  kI16 = 3,
  kU16 = 4,
  kF16 = 5,
  kBF16 = 6,
  kI32 = 7,
  kU32 = 8,
  kF32 = 9,
  kF64 = 10,
  kI64 = 11,
  kU64 = 12,
  kF8E4M3 = 13,
  kF8E5M2 = 14,
};
inline constexpr uint8_t kDTypeCount = 15;

// Both assert that `dtype` is one of the above: what came from outside is checked before it is
// cast.
uint64_t dtype_bytes(DType dtype);
std::string_view dtype_name(DType dtype);  // "F32", "BF16", "F8_E4M3", ...
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace ckpt
