#include "client/src/c_api_units.h"

#include <cstring>

#include "client/src/c_api.h"
#include "formats/codec.h"
#include "formats/dtype.h"

namespace ckpt::lib {
namespace {

Result<TensorSpec> tensor_spec(const char* unit, const ckpt_tensor& from) {
  if (from.name == nullptr || from.dtype == nullptr || (from.rank > 0 && from.shape == nullptr)) {
    return make_error(ErrorCode::kInvalidArgument, "unit {}: a tensor without name, dtype or shape",
                      unit);
  }
  const std::optional<DType> dtype = dtype_from_name(from.dtype);
  if (!dtype) {
    return make_error(ErrorCode::kInvalidArgument, "unit {} tensor {}: unknown dtype {}", unit,
                      from.name, from.dtype);
  }
  return TensorSpec{from.name, *dtype, {from.shape, from.shape + from.rank}, from.offset};
}

Result<std::optional<uint32_t>> attribute(const ckpt_unit& unit, const char* what, int64_t value) {
  if (value < -1 || value > INT32_MAX) {
    return make_error(ErrorCode::kInvalidArgument, "unit {}: {} {}", unit.name, what, value);
  }
  if (value < 0) return std::optional<uint32_t>();
  return std::optional(static_cast<uint32_t>(value));
}

}  // namespace

Result<UnitSpec> unit_spec(const ckpt_unit& from) {
  if (from.name == nullptr) return missing("unit name");
  if (from.tensor_count > 0 && from.tensors == nullptr) return missing("tensors");
  UnitSpec spec;
  spec.name = from.name;
  CKPT_ASSIGN(spec.layer, attribute(from, "layer", from.layer));
  CKPT_ASSIGN(spec.expert, attribute(from, "expert", from.expert));
  const std::string_view part = from.part != nullptr ? from.part : "";
  if (part == unit_part_name(UnitPart::kWeights)) {
    spec.part = UnitPart::kWeights;
  } else if (part == unit_part_name(UnitPart::kOptimizer)) {
    spec.part = UnitPart::kOptimizer;
  } else if (!part.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "unit {}: part {} is neither weights nor optimizer", from.name, part);
  }
  spec.bytes = from.bytes;
  for (size_t i = 0; i < from.tensor_count; ++i) {
    CKPT_ASSIGN(TensorSpec tensor, tensor_spec(from.name, from.tensors[i]));
    spec.tensors.push_back(std::move(tensor));
  }
  return spec;
}

Result<fb::UnitCodec> unit_codec(const UnitSpec& unit, const ckpt_codec* codec) {
  int value = 0;
  static_assert(sizeof value == sizeof *codec);
  std::memcpy(&value, codec, sizeof value);
  if (value < 0 || value > static_cast<int>(fb::UnitCodec::MAX)) {
    return make_error(ErrorCode::kInvalidArgument, "unit {}: codec {}", unit.name, value);
  }
  if (value == CKPT_CODEC_AUTO) {
    return make_error(ErrorCode::kInvalidArgument, "unit {}: {}", unit.name, kAutoCodecRemoved);
  }
  return static_cast<fb::UnitCodec>(value);
}

Status check_flags(const UnitSpec& unit, uint32_t flags) {
  if ((flags & ~CKPT_UNIT_CONSTANT) == 0) return ok_status();
  return make_error(ErrorCode::kInvalidArgument,
                    "unit {}: flags {:#x}, of which this library knows only {:#x}", unit.name,
                    flags, CKPT_UNIT_CONSTANT);
}

}  // namespace ckpt::lib
