#include "ckptd/catalog/lost_views.h"

#include <algorithm>
#include <vector>

#include "formats/segment_path.h"
#include "formats/selector.h"

namespace ckptd {
namespace {

std::string name_of(const RunInfo& run, ViewPoint commit) {
  return ckpt::commit_name(run.name, commit.lineage, commit.step);
}

// The newest complete view in any lineage.
std::optional<ViewPoint> elsewhere(const Catalog& catalog, const RunInfo& run) {
  const auto lineages = catalog.lineages(run.id);
  if (!lineages.ok()) return std::nullopt;
  for (auto lineage = lineages->rbegin(); lineage != lineages->rend(); ++lineage) {
    if (const auto point = catalog.latest_complete(run.id, lineage->id)) return point;
  }
  return std::nullopt;
}

}  // namespace

std::string put_back_remedy(std::string_view reason) {
  const std::string_view missing = ckpt::missing_file_of(reason);
  if (missing.empty()) return "put a good copy of the segment file back and restart ckptd";
  return fmt::format("put {} back and restart ckptd", missing);
}

std::optional<ckpt::Error> lost_views(const Catalog& catalog, const RunInfo& run,
                                      ckpt::LineageId lineage) {
  if (run.commits == 0) return std::nullopt;
  const std::vector<ViewPoint> path = catalog.path(run.id, {lineage, ~ckpt::Step{0}});
  const auto is_seen = [&path](const ckpt::SnapshotKey& snapshot) {
    return std::any_of(path.begin(), path.end(), [&](const ViewPoint& stretch) {
      return stretch.lineage == snapshot.lineage && snapshot.step <= stretch.step;
    });
  };
  std::optional<CommitInfo> newest;
  catalog.visit_commits(run.id, [&](const CommitInfo& commit) {
    if (commit.damaged && is_seen(commit.snapshot)) newest = commit;
    return !newest;
  });
  if (!newest) return std::nullopt;
  const std::string damage = fmt::format(
      "run {}: no view of lineage {} is complete, and {} is damaged: {}; {}", run.name,
      path.front().lineage, name_of(run, {newest->snapshot.lineage, newest->snapshot.step}),
      newest->reason, newest->deleted ? "it is removed" : put_back_remedy(newest->reason));
  if (const auto whole = elsewhere(catalog, run)) {
    return ckpt::make_error(ckpt::ErrorCode::kCorrupt,
                            "{}, or go on from {}, which is complete in another lineage", damage,
                            name_of(run, *whole));
  }
  return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "{}, or give the run up: ckptctl rm {}",
                          damage, run.name);
}

std::string damage_of_unit(const Catalog& catalog, const RunInfo& run, ViewPoint point,
                           ckpt::UnitId unit) {
  const auto units = catalog.units(run.id);
  const auto lost = catalog.damaged_version(run.id, unit, point);
  if (!lost || !units.ok() || unit >= (*units)->size()) return {};
  return fmt::format("unit {}: its version of {} is damaged: {}; {}", (**units)[unit].name,
                     name_of(run, {lost->snapshot.lineage, lost->snapshot.step}), lost->reason,
                     put_back_remedy(lost->reason));
}

}  // namespace ckptd
