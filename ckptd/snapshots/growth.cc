#include "ckptd/snapshots/growth.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "ckptd/alarms/unit_flags.h"
#include "ckptd/limits.h"
#include "formats/base/printable.h"
#include "formats/codec.h"
#include "formats/commit.h"
#include "formats/wire/convert.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::UnitSpec;

namespace {

static_assert(ckpt::kGrowthBytesMax <= ckpt::wire::kFramePayloadBytesMax - (1u << 20));
static_assert(2 * limits::kExtentsPerSnapshotMax + limits::kMetricsPerSnapshotMax +
                  ckpt::kBlobsPerCommitMax + ckpt::kGrowthTablesMax + 16 <=
              ckpt::wire::kTablesMax);

Status check_request(const UnitSpec& unit, const fb::GrownUnitT& grown) {
  if (grown.codec > fb::UnitCodec::MAX) {
    return make_error(ErrorCode::kInvalidArgument, "unit {}: no such codec: {}", unit.name,
                      static_cast<int>(grown.codec));
  }
  if (grown.codec == fb::UnitCodec::Auto) {
    return make_error(ErrorCode::kInvalidArgument, "unit {}: {}", unit.name,
                      ckpt::kAutoCodecRemoved);
  }
  if ((grown.flags & ~UnitFlags::kConstant) == 0) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "unit {}: flags {:#x}, of which this ckptd knows only {:#x}", unit.name,
                    grown.flags, UnitFlags::kConstant);
}

ckpt::Error units_differ(std::string message) {
  return with_detail(make_error(ErrorCode::kFailedPrecondition, "{}", message),
                     ckpt::ErrorDetail::kUnitsDiffer);
}

Status check_size(const std::vector<UnitSpec>& units, size_t base) {
  if (units.size() > limits::kUnitsPerRunMax) {
    return make_error(ErrorCode::kResourceExhausted, "{} units with its growth, the most is {}",
                      units.size(), limits::kUnitsPerRunMax);
  }
  uint64_t bytes = 0;
  uint64_t tables = 0;
  for (size_t i = base; i < units.size(); ++i) {
    bytes += ckpt::grown_bytes(units[i]);
    tables += 1 + units[i].tensors.size();
  }
  if (bytes <= ckpt::kGrowthBytesMax && tables <= ckpt::kGrowthTablesMax) return {};
  return make_error(ErrorCode::kResourceExhausted,
                    "the run would have grown by {} units and tensors of {} bytes, the most is {} "
                    "of {} bytes; save into a new run",
                    tables, bytes, ckpt::kGrowthTablesMax, ckpt::kGrowthBytesMax);
}

// Precondition: the units differ, and have one name.
std::string differs_from_run(const UnitSpec& known, const UnitSpec& given) {
  return fmt::format(
      "unit {}: {}; a unit never changes in a run, on any lineage: give the new one "
      "another name, or save into another run",
      given.name, difference(known, given));
}

}  // namespace

Result<Growth> read_growth(const std::vector<std::unique_ptr<fb::GrownUnitT>>& grown) {
  Growth growth;
  std::set<std::string_view> names;
  for (const auto& one : grown) {
    if (one == nullptr || one->unit == nullptr) {
      return make_error(ErrorCode::kInvalidArgument, "a growth by a unit without description");
    }
    const fb::UnitT& unit = *one->unit;
    if (growth.units.empty()) growth.first = unit.id;
    const uint64_t expected = uint64_t{growth.first} + growth.units.size();
    if (unit.id != expected || unit.id >= limits::kUnitsPerRunMax) {
      return make_error(ErrorCode::kInvalidArgument,
                        "a growth by unit {} with number {}: numbers ascend by one, to at most {}",
                        ckpt::base::printable(unit.name), unit.id, limits::kUnitsPerRunMax - 1);
    }
    CKPT_ASSIGN(UnitSpec spec, ckpt::wire::from_fb(unit));
    CKPT_TRY(check_request(spec, *one));
    if (!names.insert(unit.name).second) {
      return make_error(ErrorCode::kInvalidArgument, "unit {}: the run grows by it twice",
                        unit.name);
    }
    growth.units.push_back(std::move(spec));
    growth.codecs.push_back(one->codec);
    growth.flags.push_back(one->flags);
  }
  return growth;
}

Result<UnitSpecList> grown_units(const UnitSpecList& known, size_t base, const Growth& growth) {
  if (growth.units.empty()) return known;
  if (growth.first > known->size()) {
    return units_differ(
        fmt::format("unit {}: it has number {} in the growth, but the run has {} "
                    "units",
                    growth.units.front().name, growth.first, known->size()));
  }
  std::map<std::string_view, size_t> numbers;
  for (size_t i = 0; i < known->size(); ++i) numbers.emplace((*known)[i].name, i);
  for (size_t i = 0; i < growth.units.size(); ++i) {
    const UnitSpec& given = growth.units[i];
    const size_t number = growth.first + i;
    const auto found = numbers.find(given.name);
    if (found != numbers.end() && (*known)[found->second] != given) {
      return units_differ(differs_from_run((*known)[found->second], given));
    }
    if (found != numbers.end() && found->second != number) {
      return units_differ(fmt::format("unit {}: it has number {} in the growth, {} in the run",
                                      given.name, number, found->second));
    }
    if (found == numbers.end() && number < known->size()) {
      return units_differ(
          fmt::format("unit {}: it has number {} in the growth, which is {} in the "
                      "run",
                      given.name, number, (*known)[number].name));
    }
  }
  if (growth.first + growth.units.size() <= known->size()) return known;
  auto units = std::make_shared<std::vector<UnitSpec>>(*known);
  units->insert(units->end(),
                growth.units.begin() + static_cast<ptrdiff_t>(known->size() - growth.first),
                growth.units.end());
  CKPT_TRY(check_size(*units, base));
  return UnitSpecList(std::move(units));
}

Status check_growths_agree(const std::vector<UnitSpec>& units, const std::vector<UnitSpec>& other,
                           size_t known, ckpt::Step other_step) {
  for (size_t i = known; i < std::min(units.size(), other.size()); ++i) {
    if (units[i] == other[i]) continue;
    const std::string how = units[i].name == other[i].name
                                ? fmt::format("it has {} there", difference(units[i], other[i]))
                                : fmt::format("its number {} is {} there", i, other[i].name);
    return make_error(ErrorCode::kUnavailable,
                      "unit {}: step {} is not committed yet and grows the run, too, and {}; try "
                      "again once it has ended",
                      units[i].name, other_step, how);
  }
  return {};
}

}  // namespace ckptd
