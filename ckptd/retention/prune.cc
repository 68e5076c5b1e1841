#include "ckptd/retention/prune.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "ckptd/retention/view_needs.h"
#include "formats/base/counted.h"
#include "formats/selector.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

constexpr ckpt::Step kNow = ~ckpt::Step{0};
constexpr const char* kPinned = "pinned";

ViewPoint point_of(const CommitInfo& commit) {
  return {commit.snapshot.lineage, commit.snapshot.step};
}

std::string name_of(const RunInfo& run, ViewPoint commit) {
  return ckpt::commit_name(run.name, commit.lineage, commit.step);
}

class Planner {
 public:
  // `request`: a PruneRequest or a RemovalRequest.
  template <typename Request>
  Planner(const Catalog& catalog, const Request& request)
      : catalog_(catalog), id_(request.run), busy_(request.busy), needs_(catalog, request.run) {
    for (const HeldVersion& one : request.held) needs_.add_version(one.commit, one.unit);
    for (const HeldView& one : request.held_views) {
      needs_.add_view(one.view);
      holders_[one.view].push_back(one.reason);
    }
  }

  Result<PrunePlan> prune(const ckpt::KeepRules& rules, uint64_t now_ns) {
    CKPT_ASSIGN(const RunInfo run, catalog_.run(id_));
    CKPT_TRY(choose(run, rules, now_ns, "nothing is removed"));
    needs_.add_view({run.current_lineage, kNow});
    return decide("no rule keeps it");
  }

  // Reads the run, and chooses commits by `rules`. An error ends with `outcome`: the
  // consequence.
  Status choose(const RunInfo& run, const ckpt::KeepRules& rules, uint64_t now_ns,
                std::string_view outcome) {
    if (rules.empty()) {
      return make_error(ErrorCode::kFailedPrecondition,
                        "run {0}: no rule says what to keep; {1}; set rules first, as in `ckptctl "
                        "keep {0} --keep-last 5`",
                        run.name, outcome);
    }
    CKPT_TRY(read(run));
    CKPT_TRY(check_metrics(run, rules, outcome));
    note_unknown_tags(rules);
    if (keep_by_rules(run, rules, now_ns)) return {};
    return make_error(ErrorCode::kFailedPrecondition,
                      "run {}: the rules match none of its {}{}{}; {}", run.name,
                      ckpt::base::counted(run.commits, "commit"), plan_.notes.empty() ? "" : ": ",
                      fmt::join(plan_.notes, ", "), outcome);
  }

  Result<PrunePlan> remove_one(const RemovalRequest& request) {
    CKPT_ASSIGN(const RunInfo run, catalog_.run(id_));
    CKPT_TRY(read(run));
    CKPT_TRY(check_removable(run, request));
    kept_.resize(commits_.size());
    for (size_t i = 0; i < commits_.size(); ++i) {
      const ViewPoint point = point_of(commits_[i]);
      if (commits_[i].deleted || point == *request.point) continue;
      kept_[i] = true;
      plan_.kept.push_back({point, commits_[i].time_ns, {}});
    }
    if (request.in_use) needs_.add_view({run.current_lineage, kNow});
    CKPT_ASSIGN(PrunePlan plan, decide(request.reason));
    plan.kept.clear();  // all other commits: not worth a list
    return plan;
  }

 private:
  Status read(const RunInfo& run) {
    CKPT_ASSIGN(specs_, catalog_.units(run.id));
    commits_ = catalog_.commits(run.id);
    std::reverse(commits_.begin(), commits_.end());
    for (const auto& [tag, point] : catalog_.tags(run.id)) tags_[point].push_back(tag);
    return find_always(run);
  }

  Result<PrunePlan> decide(const std::string& reason) {
    for (const PrunePlan::Kept& kept : plan_.kept) needs_.add_view(kept.point);
    for (const ViewPoint& busy : busy_) needs_.add_view(busy);
    needs_.resolve();
    for (size_t i = 0; i < commits_.size(); ++i) {
      if (!kept_[i]) remove_if_unneeded(commits_[i], reason);
    }
    CKPT_TRY(catalog_.health());
    return std::move(plan_);
  }

  // Users set tags and pins; the resume point is needed while no job trains.
  Status check_removable(const RunInfo& run, const RemovalRequest& request) const {
    const ViewPoint point = *request.point;
    if (const auto holders = reasons_at(holders_, point); !holders.empty()) {
      return make_error(ErrorCode::kFailedPrecondition,
                        "{}: it is {}; wait until the reader is through, or let root end that by "
                        "--force",
                        name_of(run, point), fmt::join(holders, ", "));
    }
    std::vector<std::string> firm = reasons_at(firm_, point);
    std::vector<std::string> soft;
    for (const std::string& tag : reasons_at(tags_, point)) soft.push_back("tag " + tag);
    for (const std::string& reason : reasons_at(always_, point)) {
      if (std::find(firm.begin(), firm.end(), reason) != firm.end()) continue;
      (request.in_use && reason != kPinned ? firm : soft).push_back(reason);
    }
    if (firm.empty() && (soft.empty() || request.force)) return {};
    const bool helps = firm.empty();
    if (!helps) soft = firm;
    const char* now = request.in_use ? "while the run is in use" : "now";
    return make_error(ErrorCode::kFailedPrecondition, "{}: it is kept: {}; {}", name_of(run, point),
                      fmt::join(soft, ", "),
                      helps ? "--force removes it all the same"
                            : fmt::format("not even --force removes it {}", now));
  }
  static std::vector<std::string> reasons_at(
      const std::map<ViewPoint, std::vector<std::string>>& reasons, ViewPoint point) {
    const auto found = reasons.find(point);
    return found == reasons.end() ? std::vector<std::string>() : found->second;
  }

  // Collects what is kept regardless of the rules; force does not change the part in `firm_`.
  Status find_always(const RunInfo& run) {
    for (const ViewPoint& busy : busy_) firm_[busy].emplace_back("being taken again");
    for (const RunInfo& other : catalog_.runs()) {
      if (other.parent != run.id) continue;
      firm_[{other.parent_lineage, other.parent_step}].push_back("run " + other.name +
                                                                 " was started from it");
    }
    always_ = firm_;
    for (const auto& [view, holders] : holders_) {
      always_[view].insert(always_[view].end(), holders.begin(), holders.end());
    }
    for (const ViewPoint& pin : catalog_.pins(run.id)) always_[pin].emplace_back(kPinned);
    CKPT_ASSIGN(const auto lineages, catalog_.lineages(run.id));
    for (const Lineage& lineage : lineages) {
      if (lineage.id != run.current_lineage || lineage.parent == 0) continue;
      always_[{lineage.parent, lineage.fork_step}].emplace_back("the current lineage's beginning");
    }
    if (const auto latest = catalog_.latest_complete(run.id, 0)) {
      always_[*latest].emplace_back("newest complete view");
      return {};
    }
    std::optional<ViewPoint> newest;
    for (const CommitInfo& commit : commits_) {
      if (commit.deleted) continue;
      // An operator may put its file back. Without the mark the run would seem to be a new one.
      if (commit.damaged) {
        always_[point_of(commit)].emplace_back("damaged, and no view is complete");
        continue;
      }
      if (!newest || is_newer(point_of(commit), *newest)) newest = point_of(commit);
    }
    if (newest) always_[*newest].emplace_back("newest commit");
    return {};
  }

  // A metric that no commit has is a typo, or an error of a trainer: the best commit would be
  // removed. A tag that no commit has may still be set later.
  Status check_metrics(const RunInfo& run, const ckpt::KeepRules& rules,
                       std::string_view outcome) const {
    for (const ckpt::KeepRules::Best& best : rules.best) {
      const bool known = std::ranges::any_of(
          commits_, [&](const CommitInfo& commit) { return commit.metrics.contains(best.metric); });
      if (known || run.commits == 0) continue;
      return make_error(ErrorCode::kFailedPrecondition,
                        "run {}: none of its {} has the metric {}; {}", run.name,
                        ckpt::base::counted(run.commits, "commit"), best.metric, outcome);
    }
    return {};
  }

  void note_unknown_tags(const ckpt::KeepRules& rules) {
    for (const std::string& tag : rules.tags) {
      const bool known = std::ranges::any_of(tags_, [&](const auto& of_commit) {
        return std::ranges::find(of_commit.second, tag) != of_commit.second.end();
      });
      if (!known) plan_.notes.push_back(fmt::format("no commit has the tag {}", tag));
    }
  }

  // False: there are undamaged commits, but no rule keeps any. A mistyped name has that effect;
  // no user intends to remove everything.
  bool keep_by_rules(const RunInfo& run, const ckpt::KeepRules& rules, uint64_t now_ns) {
    std::vector<Candidate> candidates;
    candidates.reserve(commits_.size());
    for (const CommitInfo& commit : commits_) {
      if (commit.deleted) continue;
      const ViewPoint point = point_of(commit);
      candidates.push_back({.point = point,
                            .time_ns = commit.time_ns,
                            .damaged = commit.damaged,
                            .tags = tags_[point],
                            .metrics = commit.metrics,
                            .always = always_[point]});
    }
    const auto reasons = keep_reasons(rules, candidates, now_ns);
    note_clock(run, dated_after_now(rules, candidates, now_ns));
    size_t next = 0;
    bool some_match = candidates.empty();
    bool some_whole = false;
    kept_.resize(commits_.size());
    for (size_t i = 0; i < commits_.size(); ++i) {
      if (commits_[i].deleted) continue;
      kept_[i] = !reasons[next].empty();
      some_match |= reasons[next].size() > candidates[next].always.size();
      some_whole |= !commits_[i].damaged;
      if (kept_[i]) {
        note_holders(run, candidates[next].point, reasons[next]);
        plan_.kept.push_back({candidates[next].point, candidates[next].time_ns, reasons[next]});
      }
      ++next;
    }
    return some_match || !some_whole;
  }

  void note_clock(const RunInfo& run, const Candidate* newest) {
    if (newest == nullptr) return;
    plan_.notes.push_back(
        fmt::format("the clock is before the date of the newest commit, {}: nothing is removed, "
                    "since rules by time cannot judge; set the clock, or `rm` that commit",
                    name_of(run, newest->point)));
  }

  // Notes the readers of a commit that only readers keep.
  void note_holders(const RunInfo& run, ViewPoint point, const std::vector<std::string>& reasons) {
    const std::vector<std::string> holders = reasons_at(holders_, point);
    if (holders.empty() || holders.size() < reasons.size()) return;
    plan_.notes.push_back(fmt::format("{} is kept although no rule keeps it: it is {}",
                                      name_of(run, point), fmt::join(holders, ", ")));
  }

  // Without versions in a damaged commit, its grown units would no longer belong to later views,
  // which would then seem complete.
  std::vector<ckpt::UnitId> grown_units(const CommitInfo& commit) const {
    std::vector<ckpt::UnitId> grown;
    std::ranges::copy_if(commit.units, std::back_inserter(grown),
                         [&](ckpt::UnitId unit) { return unit >= catalog_.base_units(id_); });
    return grown;
  }

  void remove_if_unneeded(const CommitInfo& commit, const std::string& reason) {
    const ViewPoint point = point_of(commit);
    PrunePlan::Removed removed;
    removed.kept_units = commit.damaged ? grown_units(commit) : needs_.of(commit);
    removed.kept_tokens = !removed.kept_units.empty() || needs_.tokens_of(point);
    const bool unchanged = removed.kept_units.size() == commit.units.size() &&
                           (removed.kept_tokens || !commit.kept_tokens);
    if (commit.deleted && unchanged) return;
    removed.point = point;
    removed.time_ns = commit.time_ns;
    removed.again = commit.deleted;
    removed.reason = commit.deleted   ? "no view that is kept needs these units any more"
                     : commit.damaged ? "damaged, and " + reason
                                      : reason;
    if (!commit.deleted) {
      removed.tags = tags_[point];
      const std::vector<std::string> always = reasons_at(always_, point);
      removed.pinned = std::find(always.begin(), always.end(), kPinned) != always.end();
    }
    removed.bytes = commit.blob_bytes;
    for (const ckpt::UnitId unit : commit.units) {
      const bool stays =
          std::binary_search(removed.kept_units.begin(), removed.kept_units.end(), unit);
      if (!stays && unit < specs_->size()) removed.bytes += (*specs_)[unit].bytes;
    }
    plan_.removed.push_back(std::move(removed));
  }

  const Catalog& catalog_;
  const ckpt::RunId id_;
  const std::vector<ViewPoint>& busy_;
  ViewNeeds needs_;
  PrunePlan plan_;
  std::shared_ptr<const std::vector<ckpt::UnitSpec>> specs_;
  std::vector<CommitInfo> commits_;  // the one recorded last comes first
  std::vector<bool> kept_;           // by index in commits_
  std::map<ViewPoint, std::vector<std::string>> always_;
  std::map<ViewPoint, std::vector<std::string>> firm_;
  std::map<ViewPoint, std::vector<std::string>> tags_;
  std::map<ViewPoint, std::vector<std::string>> holders_;  // readers of a view, as text
};

// Removes all commits, including what earlier deletions have left.
Result<PrunePlan> remove_run(const Catalog& catalog, const RemovalRequest& request) {
  CKPT_ASSIGN(const RunInfo run, catalog.run(request.run));
  for (const RunInfo& other : catalog.runs()) {
    if (other.parent != run.id) continue;
    return make_error(ErrorCode::kFailedPrecondition,
                      "run {}: run {} was started from {}; remove that one first", run.name,
                      other.name, name_of(run, {other.parent_lineage, other.parent_step}));
  }
  if (!request.held_views.empty()) {
    const HeldView& one = request.held_views.front();
    return make_error(
        ErrorCode::kFailedPrecondition,
        "run {}: {} is {}{}; wait until the readers are through, or let root end that by --force",
        run.name, name_of(run, one.view), one.reason,
        request.held_views.size() == 1
            ? ""
            : fmt::format(", and there are {} more holds", request.held_views.size() - 1));
  }
  std::vector<std::string> kept;
  for (const auto& [tag, point] : catalog.tags(run.id)) {
    kept.push_back(fmt::format("tag {} of {}", tag, name_of(run, point)));
  }
  for (const ViewPoint& pin : catalog.pins(run.id)) {
    kept.push_back(fmt::format("{} is pinned", name_of(run, pin)));
  }
  if (!kept.empty() && !request.force) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "run {}: it has what is kept: {}; --force removes it all the same", run.name,
                      fmt::join(kept, ", "));
  }
  CKPT_ASSIGN(const auto specs, catalog.units(run.id));
  PrunePlan plan;
  catalog.visit_commits(run.id, [&](const CommitInfo& commit) {
    if (commit.deleted && commit.units.empty()) return true;
    PrunePlan::Removed removed;
    removed.point = point_of(commit);
    removed.time_ns = commit.time_ns;
    removed.again = commit.deleted;
    removed.reason = request.reason;
    removed.bytes = commit.blob_bytes;
    for (const ckpt::UnitId unit : commit.units) {
      if (unit < specs->size()) removed.bytes += (*specs)[unit].bytes;
    }
    plan.removed.push_back(std::move(removed));
    return true;
  });
  CKPT_TRY(catalog.health());
  return plan;
}

}  // namespace

std::set<ViewPoint> PrunePlan::removed_points() const {
  std::set<ViewPoint> points;
  for (const Removed& commit : removed) points.insert(commit.point);
  return points;
}

Result<PrunePlan> plan_prune(const Catalog& catalog, const PruneRequest& request) {
  return Planner(catalog, request).prune(request.rules, request.now_ns);
}

Status check_rules(const Catalog& catalog, ckpt::RunId run_id, const ckpt::KeepRules& rules) {
  CKPT_ASSIGN(const RunInfo run, catalog.run(run_id));
  if (run.commits == 0) return {};
  constexpr uint64_t kNever = UINT64_MAX;  // a slow clock is not an error of the rules
  CKPT_TRY(Planner(catalog, PruneRequest{.run = run_id})
               .choose(run, rules, kNever, "the rules stay as they were"));
  return catalog.health();
}

Result<PrunePlan> plan_removal(const Catalog& catalog, const RemovalRequest& request) {
  if (!request.point) return remove_run(catalog, request);
  return Planner(catalog, request).remove_one(request);
}

}  // namespace ckptd
