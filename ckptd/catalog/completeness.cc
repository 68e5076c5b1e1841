// Which units a view has, and whether it has a version of each.
#include <algorithm>

#include "ckptd/catalog/catalog_impl.h"

namespace ckptd {

using keys::CommitIndex;

namespace {

constexpr ckpt::Step kNewest = ~ckpt::Step{0};

}  // namespace

bool Catalog::Impl::has_version(ckpt::RunId run, ckpt::UnitId unit,
                                const std::vector<Stretch>& path) const {
  return std::any_of(path.begin(), path.end(), [&](const Stretch& stretch) {
    return newest_in(run, unit, stretch).has_value();
  });
}

bool Catalog::Impl::was_saved(ckpt::RunId run, ckpt::UnitId unit,
                              const std::vector<Stretch>& path) const {
  return std::any_of(path.begin(), path.end(), [&](const Stretch& stretch) {
    return seek_for_prev(Family::kVersions,
                         keys::version(run, unit, stretch.lineage, stretch.newest_step),
                         keys::versions(run, unit, stretch.lineage))
        .has_value();
  });
}

std::optional<ckpt::Step> Catalog::Impl::first_saved(ckpt::RunId run, ckpt::UnitId unit,
                                                     ckpt::LineageId lineage) const {
  std::optional<ckpt::Step> first;
  scan(Family::kVersions, keys::versions(run, unit, lineage), KvStore::Order::kAscending,
       [&](std::string_view key, std::string_view) {
         if (const auto at = keys::lineage_step_at_end(key)) {
           first = at->step;
         } else {
           damaged(Family::kVersions, fmt::format("unit number {}", unit));
         }
         return false;
       });
  return first;
}

bool Catalog::belongs(ckpt::RunId run, ckpt::UnitId unit, ViewPoint point) const {
  const RunEntry* entry = impl_->find(run);
  if (entry == nullptr || unit >= entry->units->size()) return false;
  return unit < entry->base_units || impl_->was_saved(run, unit, impl_->path(*entry, point));
}

std::optional<ckpt::UnitId> Catalog::Impl::missing_unit(const RunEntry& entry,
                                                        const std::vector<Stretch>& path) const {
  const ckpt::RunId run = entry.info.id;
  // The newest full commit has the first units of the run; check only the rest.
  ckpt::UnitId first_unknown = 0;
  for (const Stretch& stretch : path) {
    const auto full =
        seek_for_prev(Family::kCommits,
                      keys::commit(run, CommitIndex::kFull, stretch.lineage, stretch.newest_step),
                      keys::commits(run, CommitIndex::kFull, stretch.lineage));
    if (!full) continue;
    const auto leading = keys::u32_at(full->value, 0);
    if (!leading) damaged(Family::kCommits, "an entry of the full commits");
    first_unknown = leading.value_or(0);
    break;
  }
  for (ckpt::UnitId unit = first_unknown; unit < entry.units->size(); ++unit) {
    if (has_version(run, unit, path)) continue;
    if (unit < entry.base_units || was_saved(run, unit, path)) return unit;
  }
  return std::nullopt;
}

bool Catalog::complete(ckpt::RunId run, ViewPoint point) const {
  const RunEntry* entry = impl_->find(run);
  if (entry == nullptr || entry->units->empty()) return false;
  const std::vector<Impl::Stretch> path = impl_->path(*entry, point);
  return !path.empty() && !impl_->missing_unit(*entry, path);
}

std::optional<ckpt::Step> Catalog::Impl::newest_live(ckpt::RunId run,
                                                     const Stretch& stretch) const {
  const auto live = seek_for_prev(
      Family::kCommits, keys::commit(run, CommitIndex::kLive, stretch.lineage, stretch.newest_step),
      keys::commits(run, CommitIndex::kLive, stretch.lineage));
  if (!live) return std::nullopt;
  if (const auto at = keys::lineage_step_at_end(live->key)) return at->step;
  damaged(Family::kCommits, "an entry of the live commits");
  return std::nullopt;
}

std::optional<ckpt::Step> Catalog::Impl::first_saved(ckpt::RunId run, ckpt::UnitId unit,
                                                     const std::vector<Stretch>& path) const {
  std::optional<ckpt::Step> first;
  for (const Stretch& stretch : path) {
    const auto in_lineage = first_saved(run, unit, stretch.lineage);
    if (!in_lineage || *in_lineage > stretch.newest_step) continue;
    if (!first || *in_lineage < *first) first = in_lineage;
  }
  return first;
}

// Going forward in a lineage, a view keeps the versions that it has. So an earlier view of the
// lineage can be complete only if it lacks the missing unit itself, which is a grown one: its step
// is before the first that saved the unit, be it an ancestor's.
std::optional<ViewPoint> Catalog::Impl::latest_complete_in(const RunEntry& entry,
                                                           Stretch stretch) const {
  const ckpt::RunId run = entry.info.id;
  while (const auto step = newest_live(run, stretch)) {
    const ViewPoint point{stretch.lineage, *step};
    const std::vector<Stretch> seen = path(entry, point);
    const auto missing = missing_unit(entry, seen);
    if (!missing) return point;
    if (*missing < entry.base_units) break;
    const auto first = first_saved(run, *missing, seen);
    if (!first || *first == 0 || *first > *step || !health.ok()) break;
    stretch.newest_step = *first - 1;
  }
  return std::nullopt;
}

std::optional<ViewPoint> Catalog::latest_complete(ckpt::RunId run, ckpt::LineageId lineage) const {
  const RunEntry* entry = impl_->find(run);
  if (entry == nullptr || entry->units->empty()) return std::nullopt;
  for (const Impl::Stretch& stretch : impl_->path(*entry, {lineage, kNewest})) {
    if (const auto point = impl_->latest_complete_in(*entry, stretch)) return point;
  }
  return std::nullopt;
}

}  // namespace ckptd
