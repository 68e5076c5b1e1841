#include "ckptd/ingest/fragment_ledger.h"

#include <algorithm>
#include <iterator>

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
    previous = &range;
  }
  ledger.left_ = ledger.declared_.size();
  ledger.sealed_.resize(ledger.left_, Sealed::kNothing);
  return ledger;
}

// The declared range that contains all of `range`.
std::optional<size_t> FragmentLedger::find_declared(const UnitRange& range) const {
  const auto after = std::upper_bound(
      declared_.begin(), declared_.end(), range, [](const UnitRange& a, const UnitRange& b) {
        return std::pair(a.unit, a.offset) < std::pair(b.unit, b.offset);
      });
  if (range.length == 0 || after == declared_.begin()) return std::nullopt;
  const auto candidate = std::prev(after);
  const bool holds =
      candidate->unit == range.unit &&
      ckpt::base::range_fits(range.offset - candidate->offset, range.length, candidate->length);
  if (!holds) return std::nullopt;
  return static_cast<size_t>(candidate - declared_.begin());
}

ckpt::Status FragmentLedger::seal(const UnitRange& range, const Specs& specs) {
  const auto refused = [&](const char* why) {
    return make_error(ErrorCode::kInvalidArgument, "{}: {} bytes at {} were sealed {}",
                      range.unit < specs.size() ? fmt::format("unit {}", specs[range.unit].name)
                                                : fmt::format("unit number {}", range.unit),
                      range.length, range.offset, why);
  };
  const auto at = find_declared(range);
  if (!at) return refused("but not declared");
  const UnitRange& declared = declared_[*at];
  Sealed& sealed = sealed_[*at];
  if (sealed == Sealed::kAll) return refused("twice");
  if (range == declared && sealed == Sealed::kNothing) {
    sealed = Sealed::kAll;
  } else {
    if (sealed == Sealed::kNothing) {
      missing_.emplace(std::pair(declared.unit, declared.offset),
                       declared.offset + declared.length);
    }
    if (!take_missing(range)) return refused("twice");
    sealed = first_missing_of(declared) ? Sealed::kPart : Sealed::kAll;
  }
  if (sealed == Sealed::kAll) --left_;
  return {};
}

// False: some byte of the range was sealed before.
bool FragmentLedger::take_missing(const UnitRange& range) {
  const auto after = missing_.upper_bound(std::pair(range.unit, range.offset));
  if (after == missing_.begin()) return false;
  const auto held = std::prev(after);
  const auto [unit, begin] = held->first;
  const uint64_t end = held->second;
  const uint64_t sealed_end = range.offset + range.length;
  if (unit != range.unit || sealed_end > end) return false;
  missing_.erase(held);
  if (begin < range.offset) missing_.emplace(std::pair(unit, begin), range.offset);
  if (sealed_end < end) missing_.emplace(std::pair(unit, sealed_end), end);
  return true;
}

// First missing part of a partly sealed range.
std::optional<UnitRange> FragmentLedger::first_missing_of(const UnitRange& declared) const {
  const auto first = missing_.lower_bound(std::pair(declared.unit, declared.offset));
  if (first == missing_.end() || first->first.first != declared.unit) return std::nullopt;
  const uint64_t begin = first->first.second;
  if (begin >= declared.offset + declared.length) return std::nullopt;
  return UnitRange{.unit = declared.unit, .offset = begin, .length = first->second - begin};
}

std::optional<UnitRange> FragmentLedger::first_missing() const {
  for (size_t i = 0; i < declared_.size(); ++i) {
    if (sealed_[i] == Sealed::kNothing) return declared_[i];
    if (sealed_[i] == Sealed::kPart) return first_missing_of(declared_[i]);
  }
  return std::nullopt;
}

}  // namespace ckptd
