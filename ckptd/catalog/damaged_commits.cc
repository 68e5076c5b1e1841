#include "ckptd/catalog/damaged_commits.h"

#include <algorithm>
#include <optional>

namespace ckptd {
namespace {

std::optional<ckpt::UnitId> unit_id(const std::vector<ckpt::UnitSpec>& specs,
                                    std::string_view name) {
  const auto spec = std::ranges::find(specs, name, &ckpt::UnitSpec::name);
  if (spec == specs.end()) return std::nullopt;
  return static_cast<ckpt::UnitId>(spec - specs.begin());
}

bool overlaps(const DamagedBytes& damaged, const FragmentPlace& place) {
  return place.segment == damaged.segment && place.extent_offset == damaged.extent_offset &&
         place.payload_offset < damaged.offset + damaged.bytes &&
         damaged.offset < place.stored_end();
}

// True if the commit has its own version of the unit, and that version needs these bytes.
bool needs(const Catalog& catalog, ckpt::RunId run, ckpt::UnitId unit, ViewPoint commit,
           const DamagedBytes& damaged) {
  const auto version = catalog.newest_version(run, unit, commit, std::nullopt);
  if (!version || ViewPoint{version->snapshot.lineage, version->snapshot.step} != commit) {
    return false;
  }
  return std::ranges::any_of(version->fragments, [&](const FragmentPlace& place) {
    return overlaps(damaged, place) || (place.base && overlaps(damaged, base_of(place)));
  });
}

// Fallback when the place of the damage is unknown: checks only that the commit has the unit.
bool has(const Catalog& catalog, ckpt::RunId run, std::optional<ckpt::UnitId> unit,
         ViewPoint point) {
  const auto commit = catalog.commit(run, point.lineage, point.step);
  if (!commit) return false;
  return !commit->deleted ||
         (unit && std::ranges::find(commit->units, *unit) != commit->units.end());
}

}  // namespace

bool is_of_run(const ScrubDamage& damage, const RunInfo& run) {
  return damage.place.run != 0 ? damage.place.run == run.id : damage.run == run.name;
}

std::vector<ViewPoint> dependent_commits(const Catalog& catalog, const ScrubDamage& damage,
                                         ckpt::RunId run, const std::vector<ckpt::UnitSpec>& units,
                                         size_t& holders_left) {
  const auto unit = unit_id(units, damage.unit);
  const DamagedBytes& place = damage.place;
  const ViewPoint found_in{damage.lineage, damage.step};
  if (!unit || place.bytes == 0) {
    return has(catalog, run, unit, found_in) ? std::vector{found_in} : std::vector<ViewPoint>();
  }
  std::vector<ViewPoint> commits =
      catalog.holders(run, place.segment, place.extent_offset, holders_left);
  holders_left -= commits.size();
  commits.insert(commits.begin(), {found_in, {place.written_by_lineage, place.written_by_step}});
  std::erase_if(
      commits, [&](const ViewPoint& commit) { return !needs(catalog, run, *unit, commit, place); });
  return commits;
}

}  // namespace ckptd
