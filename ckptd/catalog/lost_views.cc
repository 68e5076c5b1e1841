#include "ckptd/catalog/lost_views.h"

#include <algorithm>
#include <vector>

namespace ckptd {

std::optional<ckpt::Error> lost_views(const Catalog& catalog, const RunInfo& run,
                                      ckpt::LineageId lineage) {
  const std::vector<ViewPoint> path = catalog.path(run.id, {lineage, ~ckpt::Step{0}});
  const auto is_seen = [&path](const ckpt::SnapshotKey& snapshot) {
    return std::any_of(path.begin(), path.end(), [&](const ViewPoint& stretch) {
      return stretch.lineage == snapshot.lineage && snapshot.step <= stretch.step;
    });
  };
  std::optional<CommitInfo> newest;
  for (const CommitInfo& commit : catalog.commits(run.id)) {
    if (!commit.damaged || commit.deleted || !is_seen(commit.snapshot)) continue;
    if (!newest || commit.sequence > newest->sequence) newest = commit;
  }
  if (!newest) return std::nullopt;
  return ckpt::make_error(
      ckpt::ErrorCode::kCorrupt,
      "run {}: no view is complete, because commits are damaged; the newest of them is {}~{}@{}: "
      "{}; `ckptctl status` tells the remedy, and `ckptctl rm {}` gives the run up",
      run.name, run.name, newest->snapshot.lineage, newest->snapshot.step, newest->reason,
      run.name);
}

}  // namespace ckptd
