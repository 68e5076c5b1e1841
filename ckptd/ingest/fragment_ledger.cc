#include "ckptd/ingest/fragment_ledger.h"

#include <algorithm>

#include "formats/base/checked.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::UnitRange;

namespace {

ckpt::Status check_range(const UnitRange& range, const std::vector<ckpt::UnitId>& units,
                         const FragmentLedger::Specs& specs) {
  if (range.unit >= specs.size()) {
    return make_error(ErrorCode::kInvalidArgument, "fragment of unit number {}: the run has {}",
                      range.unit, specs.size());
  }
  const ckpt::UnitSpec& unit = specs[range.unit];
  if (!std::binary_search(units.begin(), units.end(), range.unit)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "unit {}: a fragment of it is declared, but the snapshot does not hold it",
                      unit.name);
  }
  if (range.length == 0 || !ckpt::base::range_fits(range.offset, range.length, unit.bytes)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "unit {}: fragment of {} bytes at {} is not inside its {} bytes", unit.name,
                      range.length, range.offset, unit.bytes);
  }
  return {};
}

}  // namespace

ckpt::Result<FragmentLedger> FragmentLedger::declare(const std::vector<UnitRange>& ranges,
                                                     const std::vector<ckpt::UnitId>& units,
                                                     const Specs& specs) {
  FragmentLedger ledger;
  ledger.declared_ = ranges;
  std::sort(ledger.declared_.begin(), ledger.declared_.end());
  const UnitRange* previous = nullptr;
  for (const UnitRange& range : ledger.declared_) {
    CKPT_TRY(check_range(range, units, specs));
    if (previous != nullptr && previous->unit == range.unit &&
        range.offset < previous->offset + previous->length) {
      return make_error(ErrorCode::kInvalidArgument, "unit {}: bytes [{}, {}) are declared twice",
                        specs[range.unit].name, range.offset,
                        std::min(range.offset + range.length, previous->offset + previous->length));
    }
    ledger.missing_.emplace_hint(ledger.missing_.end(), std::pair(range.unit, range.offset),
                                 range.offset + range.length);
    previous = &range;
  }
  return ledger;
}

// The interval that holds all of `range`, or end().
FragmentLedger::Intervals::const_iterator FragmentLedger::find(const Intervals& intervals,
                                                               const UnitRange& range) {
  auto after = intervals.upper_bound(std::pair(range.unit, range.offset));
  if (after == intervals.begin()) return intervals.end();
  const auto candidate = std::prev(after);
  if (candidate->first.first != range.unit) return intervals.end();
  const uint64_t end = candidate->second;
  if (range.offset >= end || range.length > end - range.offset) return intervals.end();
  return candidate;
}

ckpt::Status FragmentLedger::seal(const UnitRange& range, const Specs& specs) {
  const auto held = range.length == 0 ? missing_.cend() : find(missing_, range);
  if (held == missing_.cend()) {
    const auto declared =
        std::find_if(declared_.begin(), declared_.end(), [&](const UnitRange& candidate) {
          return candidate.unit == range.unit && range.offset >= candidate.offset &&
                 ckpt::base::range_fits(range.offset - candidate.offset, range.length,
                                        candidate.length);
        });
    const bool twice = range.length > 0 && declared != declared_.end();
    return make_error(ErrorCode::kInvalidArgument, "{}: {} bytes at {} {}",
                      range.unit < specs.size() ? fmt::format("unit {}", specs[range.unit].name)
                                                : fmt::format("unit number {}", range.unit),
                      range.length, range.offset,
                      twice ? "were sealed twice" : "were sealed but not declared");
  }
  const auto [unit, begin] = held->first;
  const uint64_t end = held->second;
  missing_.erase(held);
  if (begin < range.offset) missing_.emplace(std::pair(unit, begin), range.offset);
  const uint64_t sealed_end = range.offset + range.length;
  if (sealed_end < end) missing_.emplace(std::pair(unit, sealed_end), end);
  return {};
}

std::optional<UnitRange> FragmentLedger::first_missing() const {
  if (missing_.empty()) return std::nullopt;
  const auto& [key, end] = *missing_.begin();
  return UnitRange{.unit = key.first, .offset = key.second, .length = end - key.second};
}

}  // namespace ckptd
