#include "formats/wire/convert.h"

#include <memory>

namespace ckpt::wire {
namespace {

// On the wire an absent layer or expert is -1.
int32_t or_absent(const std::optional<uint32_t>& number) {
  return number ? static_cast<int32_t>(*number) : -1;
}
Result<std::optional<uint32_t>> attribute(const fb::UnitT& unit, std::string_view what,
                                          int32_t number) {
  if (number < -1) {
    return make_error(ErrorCode::kInvalidArgument, "unit {}: {} {}", unit.name, what, number);
  }
  if (number < 0) return std::optional<uint32_t>();
  return std::optional<uint32_t>(static_cast<uint32_t>(number));
}

}  // namespace

fb::UnitT to_fb(const UnitSpec& unit, UnitId id) {
  fb::UnitT out;
  out.id = id;
  out.name = unit.name;
  out.layer = or_absent(unit.layer);
  out.expert = or_absent(unit.expert);
  out.part = static_cast<uint8_t>(unit.part);
  out.bytes = unit.bytes;
  out.tensors.reserve(unit.tensors.size());
  for (const TensorSpec& tensor : unit.tensors) {
    auto one = std::make_unique<fb::TensorT>();
    one->name = tensor.name;
    one->dtype = static_cast<uint8_t>(tensor.dtype);
    one->shape = tensor.shape;
    one->offset = tensor.offset;
    out.tensors.push_back(std::move(one));
  }
  return out;
}

Result<UnitSpec> from_fb(const fb::UnitT& unit) {
  UnitSpec out;
  out.name = unit.name;
  out.part = static_cast<UnitPart>(unit.part);
  out.bytes = unit.bytes;
  out.tensors.reserve(unit.tensors.size());
  for (const auto& tensor : unit.tensors) {
    out.tensors.push_back({.name = tensor->name,
                           .dtype = static_cast<DType>(tensor->dtype),
                           .shape = tensor->shape,
                           .offset = tensor->offset});
  }
  // The name first: the other messages quote it.
  CKPT_TRY(validate(out));
  CKPT_ASSIGN(out.layer, attribute(unit, "layer", unit.layer));
  CKPT_ASSIGN(out.expert, attribute(unit, "expert", unit.expert));
  return out;
}

}  // namespace ckpt::wire
