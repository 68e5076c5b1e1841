#include "formats/dtype.h"

#include <array>

#include "formats/base/assert.h"

namespace ckpt {
namespace {

struct Description {
  std::string_view name;
  uint64_t bytes;
};
// Indexed by DType.
constexpr std::array<Description, kDTypeCount> kDTypes = {{
    {"BOOL", 1},
    {"U8", 1},
    {"I8", 1},
    {"I16", 2},
    {"U16", 2},
    {"F16", 2},
    {"BF16", 2},
    {"I32", 4},
    {"U32", 4},
    {"F32", 4},
    {"F64", 8},
    {"I64", 8},
    {"U64", 8},
    {"F8_E4M3", 1},
    {"F8_E5M2", 1},
}};

const Description& describe(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  CKPT_ASSERT(index < kDTypes.size());
  return kDTypes[index];
}

}  // namespace

uint64_t dtype_bytes(DType dtype) { return describe(dtype).bytes; }
std::string_view dtype_name(DType dtype) { return describe(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace ckpt
