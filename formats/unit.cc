#include "formats/unit.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "formats/base/checked.h"
#include "formats/base/digest.h"
#include "formats/base/printable.h"
#include "formats/base/utf8.h"

namespace ckpt {
namespace {

bool is_name_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}
bool is_unit_name_character(char c) { return is_name_character(c) || c == '%'; }

// True for tensor names that stores of version 8 and older accept.
bool is_short_ascii(const std::string& name) {
  constexpr size_t kBytesMax = 1024;
  return !name.empty() && name.size() <= kBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}

Status check_tensor_name(const UnitSpec& unit, const std::string& name) {
  if (name.size() > kTensorNameBytesMax) {
    return make_error(ErrorCode::kInvalidArgument,
                      "unit {} tensor {}: a tensor name has at most {} bytes, this one {}",
                      unit.name, base::printable(name), kTensorNameBytesMax, name.size());
  }
  if (name.find('\0') != std::string::npos || !base::is_utf8(name)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "unit {} tensor {}: a tensor name is UTF-8 without zero bytes", unit.name,
                      base::printable(name));
  }
  return ok_status();
}

// The end of the tensor, which must not begin before `taken_to`.
Result<uint64_t> check_tensor(const UnitSpec& unit, const TensorSpec& tensor, uint64_t taken_to) {
  CKPT_TRY(check_tensor_name(unit, tensor.name));
  if (static_cast<uint8_t>(tensor.dtype) >= kDTypeCount) {
    return make_error(ErrorCode::kInvalidArgument, "unit {} tensor {}: unknown dtype {}", unit.name,
                      base::printable(tensor.name), static_cast<int>(tensor.dtype));
  }
  const Result<uint64_t> bytes = tensor_bytes(tensor);
  if (!bytes.ok()) {
    return make_error(bytes.error().code, "unit {} {}", unit.name, bytes.error().message);
  }
  if (!base::range_fits(tensor.offset, *bytes, unit.bytes)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "unit {} tensor {}: {} bytes at offset {} do not fit into the unit's {}",
                      unit.name, base::printable(tensor.name), *bytes, tensor.offset, unit.bytes);
  }
  if (tensor.offset < taken_to) {
    return make_error(ErrorCode::kInvalidArgument,
                      "unit {} tensor {}: begins at {}, the tensor before it ends at {}", unit.name,
                      base::printable(tensor.name), tensor.offset, taken_to);
  }
  return tensor.offset + *bytes;
}

// "F32 [8, 4]"
std::string form_of(const TensorSpec& tensor) {
  return fmt::format("{} [{}]", dtype_name(tensor.dtype), fmt::join(tensor.shape, ", "));
}

void digest(base::Digest& digest, const TensorSpec& tensor) {
  digest.text(tensor.name);
  digest.number(static_cast<uint64_t>(tensor.dtype));
  digest.number(tensor.shape.size());
  for (const uint64_t extent : tensor.shape) digest.number(extent);
  digest.number(tensor.offset);
}

void digest_optional(base::Digest& digest, const std::optional<uint32_t>& number) {
  digest.number(number ? uint64_t{*number} + 1 : 0);
}

}  // namespace

std::string_view unit_part_name(UnitPart part) {
  switch (part) {
    case UnitPart::kNone:
      return "";
    case UnitPart::kWeights:
      return "weights";
    case UnitPart::kOptimizer:
      return "optimizer";
  }
  return "unknown";
}

Result<uint64_t> tensor_bytes(const TensorSpec& tensor) {
  if (tensor.shape.size() > kTensorRankMax) {
    return make_error(ErrorCode::kInvalidArgument, "tensor {}: {} dimensions, allowed are {}",
                      base::printable(tensor.name), tensor.shape.size(), kTensorRankMax);
  }
  std::optional<uint64_t> elements = 1;
  for (const uint64_t extent : tensor.shape) {
    if (elements) elements = base::checked_mul(*elements, extent);
  }
  // Eight elements have a whole number of bytes, whatever their type.
  const uint64_t bits = dtype_bits(tensor.dtype);
  const std::optional<uint64_t> bytes =
      elements ? base::checked_mul(*elements / 8, bits) : std::nullopt;
  const uint64_t rest_bits = elements.value_or(0) % 8 * bits;
  const auto total = bytes ? base::checked_add(*bytes, rest_bits / 8) : std::nullopt;
  if (!total) {
    return make_error(ErrorCode::kInvalidArgument,
                      "tensor {}: its shape has more bytes than 64 bits can count",
                      base::printable(tensor.name));
  }
  if (rest_bits % 8 != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "tensor {}: {} elements of {} bits do not fill whole bytes",
                      base::printable(tensor.name), *elements, bits);
  }
  return *total;
}

bool readable_by_version_8(const UnitSpec& unit) {
  return unit.name.find('%') == std::string::npos &&
         std::all_of(unit.tensors.begin(), unit.tensors.end(), [](const TensorSpec& tensor) {
           return static_cast<uint8_t>(tensor.dtype) < kDTypeCountOfVersion8 &&
                  is_short_ascii(tensor.name);
         });
}

bool is_unit_name(std::string_view name) {
  return !name.empty() && name.size() <= kUnitNameBytesMax &&
         std::all_of(name.begin(), name.end(), is_unit_name_character);
}

Status validate(const UnitSpec& unit) {
  if (!is_unit_name(unit.name)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "unit {}: a unit name is 1 to {} characters of A-Z a-z 0-9 . _ - %",
                      base::printable(unit.name), kUnitNameBytesMax);
  }
  if (unit.bytes == 0 || unit.bytes > kUnitBytesMax) {
    return make_error(ErrorCode::kInvalidArgument, "unit {}: {} bytes, allowed are 1 to {}",
                      unit.name, unit.bytes, kUnitBytesMax);
  }
  if (unit.part > UnitPart::kOptimizer) {
    return make_error(ErrorCode::kInvalidArgument, "unit {}: unknown part {}", unit.name,
                      static_cast<int>(unit.part));
  }
  if (unit.layer.value_or(0) > kUnitAttributeMax || unit.expert.value_or(0) > kUnitAttributeMax) {
    return make_error(ErrorCode::kInvalidArgument, "unit {}: layer or expert above {}", unit.name,
                      kUnitAttributeMax);
  }
  if (unit.tensors.size() > kTensorsPerUnitMax) {
    return make_error(ErrorCode::kInvalidArgument, "unit {}: {} tensors, allowed are {}", unit.name,
                      unit.tensors.size(), kTensorsPerUnitMax);
  }
  uint64_t taken_to = 0;
  std::unordered_set<std::string_view> names;
  for (const TensorSpec& tensor : unit.tensors) {
    CKPT_ASSIGN(taken_to, check_tensor(unit, tensor, taken_to));
    if (!names.insert(tensor.name).second) {
      return make_error(ErrorCode::kInvalidArgument, "unit {} tensor {}: named twice", unit.name,
                        base::printable(tensor.name));
    }
  }
  return ok_status();
}

std::string difference(const UnitSpec& known, const UnitSpec& given) {
  const auto number = [](const std::optional<uint32_t>& value) {
    return value ? std::to_string(*value) : std::string("none");
  };
  if (known.layer != given.layer) {
    return fmt::format("layer {} instead of {}", number(given.layer), number(known.layer));
  }
  if (known.expert != given.expert) {
    return fmt::format("expert {} instead of {}", number(given.expert), number(known.expert));
  }
  if (known.part != given.part) {
    return fmt::format("part '{}' instead of '{}'", unit_part_name(given.part),
                       unit_part_name(known.part));
  }
  const size_t tensors = std::min(known.tensors.size(), given.tensors.size());
  for (size_t i = 0; i < tensors; ++i) {
    const TensorSpec& before = known.tensors[i];
    const TensorSpec& now = given.tensors[i];
    if (before == now) continue;
    if (before.name != now.name) {
      return fmt::format("tensor {} instead of {}", base::printable(now.name),
                         base::printable(before.name));
    }
    if (before.dtype != now.dtype || before.shape != now.shape) {
      return fmt::format("tensor {}: {} instead of {}", base::printable(now.name), form_of(now),
                         form_of(before));
    }
    return fmt::format("tensor {}: at byte {} instead of {}", base::printable(now.name), now.offset,
                       before.offset);
  }
  if (known.tensors.size() != given.tensors.size()) {
    return fmt::format("{} tensors instead of {}", given.tensors.size(), known.tensors.size());
  }
  if (known.bytes == given.bytes) return {};
  return fmt::format("{} bytes instead of {}", given.bytes, known.bytes);
}

base::Hash128 schema_hash(const std::vector<UnitSpec>& units) {
  base::Digest all;
  all.number(units.size());
  for (const UnitSpec& unit : units) {
    all.text(unit.name);
    digest_optional(all, unit.layer);
    digest_optional(all, unit.expert);
    all.number(static_cast<uint64_t>(unit.part));
    all.number(unit.bytes);
    all.number(unit.tensors.size());
    for (const TensorSpec& tensor : unit.tensors) digest(all, tensor);
  }
  return all.hash();
}

Status validate_name(std::string_view kind, std::string_view name) {
  constexpr size_t kNameBytesMax = 128;
  if (name.empty() || name.size() > kNameBytesMax || name.front() == '.' || name.front() == '-' ||
      !std::all_of(name.begin(), name.end(), is_name_character)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} {}: a name is 1 to {} characters of A-Z a-z 0-9 . _ -, "
                      "and starts with neither . nor -",
                      kind, name.empty() ? "''" : base::printable(name), kNameBytesMax);
  }
  return ok_status();
}

}  // namespace ckpt
