#include "formats/dtype.h"

#include <array>

#include "formats/base/assert.h"

namespace ckpt {
namespace {

struct Description {
  std::string_view name;
  uint64_t bits;
};
// Indexed by DType.
constexpr std::array<Description, kDTypeCount> kDTypes = {{
    {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"I16", 16},    {"U16", 16},
    {"F16", 16},    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},
    {"F64", 64},    {"I64", 64},        {"U64", 64},        {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"C64", 64},    {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6},
}};

const Description& describe(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  CKPT_ASSERT(index < kDTypes.size());
  return kDTypes[index];
}

}  // namespace

uint64_t dtype_bits(DType dtype) { return describe(dtype).bits; }
uint64_t dtype_bytes(DType dtype) {
  const uint64_t bits = dtype_bits(dtype);
  return bits < 8 ? 1 : bits / 8;
}
std::string_view dtype_name(DType dtype) { return describe(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace ckpt
