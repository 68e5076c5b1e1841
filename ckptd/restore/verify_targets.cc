#include <algorithm>
#include <set>

#include "ckptd/restore/verify_impl.h"

namespace ckptd {
namespace {

void add_run(const Catalog& catalog, ckpt::RunId run, std::vector<VerifyTargetCommit>& targets) {
  const size_t first = targets.size();
  catalog.visit_commits(run, [&](const CommitInfo& commit) {
    if (!commit.deleted || !commit.units.empty()) {
      targets.push_back({run, {commit.snapshot.lineage, commit.snapshot.step}});
    }
    return true;
  });
  std::reverse(targets.begin() + static_cast<ptrdiff_t>(first), targets.end());
}

void add_view(const Catalog& catalog, ckpt::RunId run, ViewPoint point,
              std::vector<VerifyTargetCommit>& targets) {
  std::set<ViewPoint> commits;
  // The commit itself, should it be damaged: then no view is made of it.
  if (catalog.commit(run, point.lineage, point.step)) commits.insert(point);
  const auto units = catalog.units(run);
  for (ckpt::UnitId unit = 0; units.ok() && unit < (*units)->size(); ++unit) {
    const auto version = catalog.newest_version(run, unit, point, std::nullopt);
    if (version) commits.insert({version->snapshot.lineage, version->snapshot.step});
  }
  for (const ViewPoint& commit : commits) targets.push_back({run, commit});
}

}  // namespace

std::vector<VerifyTargetCommit> verify_targets(const Catalog& catalog,
                                               const std::optional<ckpt::RunId>& run,
                                               const std::optional<ViewPoint>& point) {
  std::vector<VerifyTargetCommit> targets;
  if (run && point) {
    add_view(catalog, *run, *point, targets);
  } else if (run) {
    add_run(catalog, *run, targets);
  } else {
    for (const RunInfo& info : catalog.runs()) add_run(catalog, info.id, targets);
  }
  return targets;
}

}  // namespace ckptd
