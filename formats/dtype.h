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
  // Stores of version 9 and later only: readable_by_version_8() in unit.h.
  kF8E8M0 = 15,
  kF8E4M3FNUZ = 16,
  kF8E5M2FNUZ = 17,
  kC64 = 18,  // complex: two F32
  kF4 = 19,   // several elements share a byte
  kF6E2M3 = 20,
  kF6E3M2 = 21,
};
inline constexpr uint8_t kDTypeCount = 22;
inline constexpr uint8_t kDTypeCountOfVersion8 = 15;

// The functions assert that `dtype` is one of the above. A number from outside is checked before
// the cast.
uint64_t dtype_bits(DType dtype);  // of one element
// Bytes of one element; 1 for the types of which several elements share a byte.
uint64_t dtype_bytes(DType dtype);
std::string_view dtype_name(DType dtype);  // "F32", "BF16", "F8_E4M3", ...
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace ckpt
