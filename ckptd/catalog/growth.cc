#include "ckptd/catalog/growth.h"

#include <utility>

#include "formats/wire/convert.h"

namespace ckptd {

namespace fb = ckpt::fb;

Result<ckpt::UnitId> take_units(const std::vector<std::unique_ptr<fb::UnitT>>& units, bool grown,
                                RunEntry& run) {
  UnitSpecs specs = *run.units;
  const auto first = static_cast<ckpt::UnitId>(specs.size());
  for (const auto& unit : units) {
    auto read = ckpt::wire::from_fb(*unit);
    if (!read.ok()) return contradiction("run {}: {}", run.info.name, read.error().message);
    ckpt::UnitSpec spec = std::move(read).value();
    if (unit->id > specs.size() || (unit->id < specs.size() && specs[unit->id] != spec)) {
      return contradiction("run {} unit {}: registered again as something else", run.info.name,
                           unit->name);
    }
    if (unit->id == specs.size()) specs.push_back(std::move(spec));
  }
  if (specs.size() == first) return first;
  if (!grown) {
    if (run.base_units < first) {
      return contradiction("run {} unit {}: registered after the run has grown", run.info.name,
                           specs[first].name);
    }
    run.base_units = static_cast<ckpt::UnitId>(specs.size());
  }
  run.units = std::make_shared<const UnitSpecs>(std::move(specs));
  return first;
}

Status take_growth(const fb::CommittedT& commit, Change& change) {
  if (commit.grown.empty()) return {};
  RunEntry& run = *change.run;
  CKPT_ASSIGN(const ckpt::UnitId first, take_units(commit.grown, /*grown=*/true, run));
  if (first == run.units->size()) return {};
  fb::RecordT record;
  fb::UnitsRegisteredT registered;
  registered.run = commit.run;
  registered.schema = ckpt::wire::to_fb(ckpt::schema_hash(*run.units));
  registered.grown = true;
  for (ckpt::UnitId unit = first; unit < run.units->size(); ++unit) {
    registered.units.push_back(
        std::make_unique<fb::UnitT>(ckpt::wire::to_fb((*run.units)[unit], unit)));
  }
  record.body.Set(std::move(registered));
  change.put(Family::kUnits, keys::units(commit.run, first), values::encode(record));
  return {};
}

Status check_growth_contained(const fb::CommittedT& commit, const PlacesByUnit& units, size_t known,
                              const UnitSpecs& specs) {
  for (size_t unit = known; unit < specs.size(); ++unit) {
    if (units.contains(static_cast<ckpt::UnitId>(unit))) continue;
    return contradiction("step {}: it grows the run by unit {}, which it does not contain",
                         commit.step, specs[unit].name);
  }
  return {};
}

}  // namespace ckptd
