#include "client/src/run_units.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "formats/wire/convert.h"

namespace ckpt::lib {

void RunUnits::registered(std::vector<UnitSpec> units) {
  const bool same_start =
      units.size() <= known_ && std::equal(units.begin(), units.end(), units_.begin());
  registered_ = units.size();
  if (same_start) return;  // registered again, within an epoch that knows more
  units_ = std::move(units);
  known_ = unsent_from_ = units_.size();
  asked_.clear();
}

Status RunUnits::epoch_started(const std::vector<std::unique_ptr<fb::UnitT>>& grown) {
  std::vector<UnitSpec> units(units_.begin(), units_.begin() + static_cast<ptrdiff_t>(registered_));
  for (const auto& unit : grown) {
    if (unit == nullptr || unit->id > units.size()) {
      return make_error(ErrorCode::kCorrupt, "the daemon's list of grown units has a gap");
    }
    CKPT_ASSIGN(UnitSpec spec, wire::from_fb(*unit));
    if (unit->id < units.size() && units[unit->id] != spec) {
      return make_error(ErrorCode::kCorrupt, "unit {}: the daemon has registered it differently",
                        spec.name);
    }
    if (unit->id == units.size()) units.push_back(std::move(spec));
  }
  units_ = std::move(units);
  known_ = unsent_from_ = units_.size();
  asked_.clear();
  return ok_status();
}

Result<std::vector<UnitId>> RunUnits::grow(const std::vector<GrowUnit>& units, bool in_flight) {
  const size_t kept = in_flight ? units_.size() : known_;
  std::map<std::string_view, UnitId> ids;
  for (size_t i = 0; i < kept; ++i) ids.emplace(units_[i].name, static_cast<UnitId>(i));
  std::set<std::string_view> names;
  std::vector<UnitId> found;
  auto next = static_cast<UnitId>(kept);
  for (const GrowUnit& unit : units) {
    CKPT_TRY(validate(unit.spec));
    if (!names.insert(unit.spec.name).second) {
      return make_error(ErrorCode::kInvalidArgument, "unit {}: named twice", unit.spec.name);
    }
    const auto known = ids.find(unit.spec.name);
    if (known == ids.end()) {
      found.push_back(next++);
      continue;
    }
    const std::string different = difference(units_[known->second], unit.spec);
    if (!different.empty()) {
      return with_detail(
          make_error(ErrorCode::kFailedPrecondition,
                     "unit {}: {}; a unit never changes in a run, on any lineage: give the new "
                     "one another name, or save into another run",
                     unit.spec.name, different),
          ErrorDetail::kUnitsDiffer);
    }
    found.push_back(known->second);
  }
  units_.erase(units_.begin() + static_cast<ptrdiff_t>(kept), units_.end());
  asked_.erase(asked_.lower_bound(static_cast<UnitId>(kept)), asked_.end());
  for (size_t i = 0; i < units.size(); ++i) {
    if (found[i] == units_.size()) units_.push_back(units[i].spec);
    asked_[found[i]] = {units[i].codec, units[i].flags};
    if (found[i] >= registered_) unsent_from_ = std::min<size_t>(unsent_from_, found[i]);
  }
  return found;
}

std::vector<std::unique_ptr<fb::GrownUnitT>> RunUnits::range(size_t from, size_t to) const {
  std::vector<std::unique_ptr<fb::GrownUnitT>> grown;
  for (size_t i = from; i < to; ++i) {
    const auto id = static_cast<UnitId>(i);
    const auto asked = asked_.find(id);
    grown.push_back(std::make_unique<fb::GrownUnitT>());
    grown.back()->unit = std::make_unique<fb::UnitT>(wire::to_fb(units_[i], id));
    if (asked == asked_.end()) continue;
    grown.back()->codec = asked->second.codec;
    grown.back()->flags = asked->second.flags;
  }
  return grown;
}

Result<std::vector<std::unique_ptr<fb::GrownUnitT>>> RunUnits::growth_of(
    const std::vector<UnitId>& planned) const {
  const auto first = std::ranges::lower_bound(planned, static_cast<UnitId>(known_));
  const auto held = static_cast<size_t>(planned.end() - first);
  const size_t pending = units_.size() - known_;
  if (held == 0) return range(std::min(unsent_from_, known_), known_);
  if (held == pending) return range(unsent_from_, units_.size());
  size_t missing = known_;
  for (auto unit = first; unit != planned.end() && *unit == missing; ++unit) ++missing;
  return make_error(ErrorCode::kFailedPrecondition,
                    "unit {} is new in the run, and the snapshot leaves it out: until a snapshot "
                    "with all new units is durable, one holds all of them or none",
                    units_[missing].name);
}

void RunUnits::committed(const std::vector<std::unique_ptr<fb::GrownUnitT>>& grown) {
  for (const auto& one : grown) {
    const size_t id = one->unit->id;
    const auto spec = wire::from_fb(*one->unit);
    if (!spec.ok() || id > units_.size() || (id < units_.size() && units_[id] != *spec)) return;
    if (id == units_.size()) units_.push_back(*spec);  // a snapshot of the epoch before
    known_ = std::max(known_, id + 1);
    unsent_from_ = std::max(unsent_from_, id + 1);
  }
}

std::vector<std::unique_ptr<fb::GrownUnitT>> RunUnits::told_again() const {
  size_t from = known_;
  for (const auto& [id, asked] : asked_) {
    if (id >= registered_ && asked != Asked()) from = std::min<size_t>(from, id);
  }
  return range(from, known_);
}

}  // namespace ckpt::lib
