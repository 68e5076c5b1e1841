#include "formats/plan.h"

#include <algorithm>

#include "formats/base/checked.h"
#include "formats/base/digest.h"

namespace ckpt {
namespace {

constexpr ErrorCode kWrong = ErrorCode::kInvalidArgument;

// Label of a unit in messages: its name, or its number if there is no such unit.
std::string unit_label(UnitId unit, const std::vector<UnitSpec>& specs) {
  return unit < specs.size() ? specs[unit].name : fmt::format("number {}", unit);
}

Status check_units(const std::vector<UnitId>& sorted, const std::vector<UnitSpec>& specs) {
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] >= specs.size()) {
      return make_error(kWrong, "unit number {}: not registered, the run has {} units", sorted[i],
                        specs.size());
    }
    if (i > 0 && sorted[i] == sorted[i - 1]) {
      return make_error(kWrong, "unit {}: planned twice", specs[sorted[i]].name);
    }
  }
  return ok_status();
}

// `ranges`: all ranges of this unit, ascending by offset.
Status check_unit(const UnitSpec& spec, std::span<const UnitRange> ranges) {
  uint64_t covered_to = 0;
  for (const UnitRange& range : ranges) {
    if (range.length == 0) {
      return make_error(kWrong, "unit {}: a fragment at offset {} has no bytes", spec.name,
                        range.offset);
    }
    if (!base::range_fits(range.offset, range.length, spec.bytes)) {
      return make_error(kWrong, "unit {}: a fragment of {} bytes at offset {} ends beyond its {}",
                        spec.name, range.length, range.offset, spec.bytes);
    }
    if (range.offset < covered_to) {
      return make_error(kWrong, "unit {}: two fragments cover bytes [{}, {})", spec.name,
                        range.offset, std::min(covered_to, range.offset + range.length));
    }
    if (range.offset > covered_to) {
      return make_error(kWrong, "unit {}: no fragment covers bytes [{}, {})", spec.name, covered_to,
                        range.offset);
    }
    covered_to = range.offset + range.length;
  }
  if (covered_to != spec.bytes) {
    return make_error(kWrong, "unit {}: no fragment covers bytes [{}, {})", spec.name, covered_to,
                      spec.bytes);
  }
  return ok_status();
}

}  // namespace

base::Hash128 plan_hash(Plan plan) {
  std::sort(plan.units.begin(), plan.units.end());
  std::sort(plan.fragments.begin(), plan.fragments.end());
  base::Digest digest;
  digest.number(plan.units.size());
  for (const UnitId unit : plan.units) digest.number(unit);
  digest.number(plan.fragments.size());
  for (const PlannedFragment& fragment : plan.fragments) {
    digest.number(fragment.rank);
    digest.number(fragment.range.unit);
    digest.number(fragment.range.offset);
    digest.number(fragment.range.length);
  }
  // Without memory units the hash is the one from before levels existed: old and new ranks agree.
  if (plan.memory_units.empty()) return digest.hash();
  std::sort(plan.memory_units.begin(), plan.memory_units.end());
  digest.number(plan.memory_units.size());
  for (const UnitId unit : plan.memory_units) digest.number(unit);
  return digest.hash();
}

Status check_exact_coverage(const std::vector<UnitId>& units, std::vector<UnitRange> ranges,
                            const std::vector<UnitSpec>& specs) {
  std::vector<UnitId> planned = units;
  std::sort(planned.begin(), planned.end());
  CKPT_TRY(check_units(planned, specs));
  std::sort(ranges.begin(), ranges.end());

  std::span<const UnitRange> rest = ranges;
  for (const UnitId unit : planned) {
    if (!rest.empty() && rest.front().unit < unit) break;  // reported below: not in the plan
    const auto end = std::find_if(rest.begin(), rest.end(),
                                  [unit](const UnitRange& range) { return range.unit != unit; });
    const auto count = static_cast<size_t>(end - rest.begin());
    CKPT_TRY(check_unit(specs[unit], rest.first(count)));
    rest = rest.subspan(count);
  }
  if (!rest.empty()) {
    return make_error(kWrong, "unit {}: not in the plan, but a fragment has bytes [{}, {}) of it",
                      unit_label(rest.front().unit, specs), rest.front().offset,
                      base::checked_add(rest.front().offset, rest.front().length).value_or(~0ull));
  }
  return ok_status();
}

}  // namespace ckpt
