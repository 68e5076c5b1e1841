#include "ckptd/runs/units.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "ckptd/limits.h"
#include "formats/json_text.h"
#include "formats/wire/convert.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Empty if the lists are the same, as far as `given` has to list the units.
std::string first_difference(const std::vector<ckpt::UnitSpec>& known, size_t base,
                             const std::vector<ckpt::UnitSpec>& given) {
  for (size_t i = 0; i < std::min(known.size(), given.size()); ++i) {
    if (known[i] == given[i]) continue;
    if (known[i].name != given[i].name) {
      return fmt::format("unit {} is {}, but was registered as {}", i, given[i].name,
                         known[i].name);
    }
    return fmt::format("unit {}: {}, which is not as it was registered", given[i].name,
                       known[i].bytes != given[i].bytes
                           ? fmt::format("{} bytes instead of {}", given[i].bytes, known[i].bytes)
                           : "its attributes or tensors differ");
  }
  if (base <= given.size() && given.size() <= known.size()) return {};
  return fmt::format(
      "{} units, but {} were registered; {} {}", given.size(), known.size(),
      given.size() < known.size() ? known[given.size()].name : given[known.size()].name,
      given.size() < known.size() ? "is missing" : "is new");
}

}  // namespace

Result<std::vector<ckpt::UnitSpec>> read_units(const fb::RegisterUnitsT& message) {
  if (message.units.empty() || message.units.size() > limits::kUnitsPerRunMax) {
    return make_error(ErrorCode::kInvalidArgument, "{} units: a run has 1 to {}",
                      message.units.size(), limits::kUnitsPerRunMax);
  }
  std::vector<ckpt::UnitSpec> units;
  std::set<std::string_view> names;
  for (const auto& unit : message.units) {
    if (unit == nullptr || unit->id != units.size()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "unit number {} is not at its place in the list", units.size());
    }
    CKPT_ASSIGN(ckpt::UnitSpec spec, ckpt::wire::from_fb(*unit));
    if (!names.insert(unit->name).second) {
      return make_error(ErrorCode::kInvalidArgument, "unit {}: registered twice", unit->name);
    }
    units.push_back(std::move(spec));
  }
  return units;
}

Status check_same_units(const std::vector<ckpt::UnitSpec>& known, size_t base,
                        const std::vector<ckpt::UnitSpec>& given) {
  const std::string difference = first_difference(known, base, given);
  if (difference.empty()) return {};
  return with_detail(make_error(ErrorCode::kFailedPrecondition, "{}", difference),
                     ckpt::ErrorDetail::kUnitsDiffer);
}

Status check_metadata(const std::string& metadata) {
  if (metadata.size() > limits::kMetadataBytesMax) {
    return make_error(ErrorCode::kInvalidArgument, "its metadata is {} bytes, the most is {}",
                      metadata.size(), limits::kMetadataBytesMax);
  }
  if (metadata.empty()) return {};
  const Status json = ckpt::check_json(metadata);
  if (json.ok()) return {};
  return make_error(ErrorCode::kInvalidArgument, "its metadata is {}", json.error().message);
}

}  // namespace ckptd
