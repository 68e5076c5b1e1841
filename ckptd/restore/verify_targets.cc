#include "ckptd/restore/verify_targets.h"

#include <algorithm>
#include <set>

namespace ckptd {
namespace {

void add_view(const Catalog& catalog, ckpt::RunId run, ViewPoint point,
              std::vector<VerifyTargetCommit>& targets) {
  std::set<ViewPoint> commits;
  // The commit itself, in case it is damaged: then no view includes it.
  if (catalog.commit(run, point.lineage, point.step)) commits.insert(point);
  const auto units = catalog.units(run);
  for (ckpt::UnitId unit = 0; units.ok() && unit < (*units)->size(); ++unit) {
    const auto version = catalog.newest_version(run, unit, point, std::nullopt);
    if (version) commits.insert({version->snapshot.lineage, version->snapshot.step});
  }
  for (const ViewPoint& at : commits) {
    const auto commit = catalog.commit(run, at.lineage, at.step);
    if (commit) targets.push_back({run, at, commit->sequence});
  }
}

}  // namespace

Result<std::vector<VerifyTargetCommit>> verify_targets_from(const Catalog& catalog, ckpt::RunId run,
                                                            uint64_t sequence, size_t most) {
  std::vector<VerifyTargetCommit> targets;
  catalog.visit_commits(run, [&](const CommitInfo& commit) {
    if (commit.sequence < sequence || targets.size() >= most) return false;
    if (!commit.deleted || !commit.units.empty()) {
      targets.push_back({run, {commit.snapshot.lineage, commit.snapshot.step}, commit.sequence});
    }
    return true;
  });
  CKPT_TRY(catalog.health());
  std::reverse(targets.begin(), targets.end());
  return targets;
}

Result<std::vector<VerifyTargetCommit>> verify_targets(const Catalog& catalog,
                                                       const std::vector<ckpt::RunId>& runs,
                                                       const std::optional<ViewPoint>& point) {
  std::vector<VerifyTargetCommit> targets;
  if (point) {
    add_view(catalog, runs.at(0), *point, targets);
    CKPT_TRY(catalog.health());
    return targets;
  }
  for (const ckpt::RunId run : runs) {
    CKPT_ASSIGN(const auto of_run, verify_targets_from(catalog, run, 0, SIZE_MAX));
    targets.insert(targets.end(), of_run.begin(), of_run.end());
  }
  return targets;
}

}  // namespace ckptd
