// HistoryModel: what a catalog must say after a history of records, computed in the simplest way.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tests/ckptd/catalog/records.h"

namespace ckptd {

// Reference model: keeps everything in lists and scans all of them for each answer.
struct HistoryModel {
  struct Commit {
    ViewPoint point;
    std::set<ckpt::UnitId> units;
    bool full = false;
    bool damaged = false;
    bool deleted = false;  // then `units` are those that other views still need
  };
  std::vector<ckpt::UnitSpec> units;
  size_t base = 0;  // units that every view has; the others are grown
  std::map<ckpt::LineageId, Lineage> lineages;
  std::vector<Commit> commits;  // in the order of the journal
  std::map<std::string, ViewPoint> tags;

  bool exists(ViewPoint point) const {
    return std::any_of(commits.begin(), commits.end(),
                       [&](const Commit& commit) { return commit.point == point; });
  }
  // Number of lineages between the view and the commit: 0 its own, 1 the parent, ...; nullopt if
  // the view does not see the commit.
  std::optional<int> distance(ViewPoint commit, ViewPoint view) const {
    if (commit.step > view.step) return std::nullopt;
    if (commit.lineage == view.lineage) return 0;
    const auto lineage = lineages.find(view.lineage);
    if (lineage == lineages.end() || lineage->second.parent == 0) return std::nullopt;
    const auto further =
        distance(commit, {lineage->second.parent, std::min(view.step, lineage->second.fork_step)});
    return further ? std::optional(*further + 1) : std::nullopt;
  }
  // Newest version of the unit in the view; with `before`, the next older version.
  std::optional<ViewPoint> newest(ckpt::UnitId unit, ViewPoint view,
                                  std::optional<ViewPoint> before = std::nullopt) const {
    std::optional<std::pair<int, ViewPoint>> best;
    const auto limit = before ? distance(*before, view) : std::optional<int>(0);
    if (!limit) return std::nullopt;
    for (const Commit& commit : commits) {
      const auto distance_to_view = distance(commit.point, view);
      if (!distance_to_view || commit.damaged || !commit.units.contains(unit)) continue;
      const bool too_new =
          before && (*distance_to_view < *limit ||
                     (*distance_to_view == *limit && commit.point.step >= before->step));
      if (too_new) continue;
      const bool better =
          !best || *distance_to_view < best->first ||
          (*distance_to_view == best->first && commit.point.step > best->second.step);
      if (better) best = {*distance_to_view, commit.point};
    }
    return best ? std::optional(best->second) : std::nullopt;
  }
  // True if the unit is of the base, or a commit that the view sees contains it.
  bool belongs(ckpt::UnitId unit, ViewPoint view) const {
    return unit < base || std::any_of(commits.begin(), commits.end(), [&](const Commit& commit) {
             return commit.units.contains(unit) && distance(commit.point, view).has_value();
           });
  }
  bool complete(ViewPoint view) const {
    for (ckpt::UnitId unit = 0; unit < units.size(); ++unit) {
      if (belongs(unit, view) && !newest(unit, view)) return false;
    }
    return !units.empty() && lineages.contains(view.lineage);
  }
  // Tries every commit that the lineage sees.
  std::optional<ViewPoint> latest_complete(ckpt::LineageId lineage) const {
    std::optional<std::pair<int, ViewPoint>> best;
    for (const Commit& commit : commits) {
      const auto distance_to_view = distance(commit.point, {lineage, ~ckpt::Step{0}});
      if (!distance_to_view || commit.damaged || commit.deleted || !complete(commit.point)) {
        continue;
      }
      const bool better =
          !best || *distance_to_view < best->first ||
          (*distance_to_view == best->first && commit.point.step > best->second.step);
      if (better) best = {*distance_to_view, commit.point};
    }
    return best ? std::optional(best->second) : std::nullopt;
  }
};

}  // namespace ckptd
