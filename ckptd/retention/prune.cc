#include "ckptd/retention/prune.h"

#include <algorithm>
#include <set>

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

constexpr ckpt::Step kNow = ~ckpt::Step{0};

ViewPoint point_of(const CommitInfo& commit) {
  return {commit.snapshot.lineage, commit.snapshot.step};
}

// What views of kept commits need of older ones.
class Needs {
 public:
  Needs(const Catalog& catalog, ckpt::RunId run) : catalog_(catalog), run_(run) {}

  void add_view(ViewPoint view) {
    const auto newest = catalog_.newest_sums(run_, view);
    for (ckpt::UnitId unit = 0; unit < newest.size(); ++unit) {
      if (newest[unit]) units_[{newest[unit]->lineage, newest[unit]->step}].insert(unit);
    }
    if (const auto tokens = catalog_.newest_expert_tokens(run_, view)) {
      tokens_.insert(tokens->commit);
    }
  }
  std::vector<ckpt::UnitId> of(const CommitInfo& commit) const {
    const auto found = units_.find(point_of(commit));
    std::vector<ckpt::UnitId> needed;
    if (found == units_.end() || commit.damaged) return needed;
    std::set_intersection(commit.units.begin(), commit.units.end(), found->second.begin(),
                          found->second.end(), std::back_inserter(needed));
    return needed;
  }
  bool tokens_of(ViewPoint commit) const { return tokens_.contains(commit); }

 private:
  const Catalog& catalog_;
  const ckpt::RunId run_;
  std::map<ViewPoint, std::set<ckpt::UnitId>> units_;
  std::set<ViewPoint> tokens_;
};

class Planner {
 public:
  Planner(const Catalog& catalog, const PruneRequest& request)
      : catalog_(catalog), request_(request), needs_(catalog, request.run) {}

  Result<PrunePlan> plan() {
    CKPT_ASSIGN(const RunInfo run, catalog_.run(request_.run));
    if (request_.rules.empty()) {
      return make_error(ErrorCode::kFailedPrecondition,
                        "run {}: no rule says what to keep; nothing is removed", run.name);
    }
    CKPT_ASSIGN(specs_, catalog_.units(run.id));
    commits_ = catalog_.commits(run.id);
    std::reverse(commits_.begin(), commits_.end());
    CKPT_TRY(find_always(run));
    choose();
    needs_.add_view({run.current_lineage, kNow});
    for (const PrunePlan::Kept& kept : plan_.kept) needs_.add_view(kept.point);
    for (size_t i = 0; i < commits_.size(); ++i) remove_if_unneeded(commits_[i], kept_[i]);
    CKPT_TRY(catalog_.health());
    return std::move(plan_);
  }

 private:
  Status find_always(const RunInfo& run) {
    for (const ViewPoint& pin : catalog_.pins(run.id)) always_[pin].emplace_back("pinned");
    for (const ViewPoint& busy : request_.busy) always_[busy].emplace_back("being taken again");
    CKPT_ASSIGN(const auto lineages, catalog_.lineages(run.id));
    for (const Lineage& lineage : lineages) {
      if (lineage.id != run.current_lineage || lineage.parent == 0) continue;
      always_[{lineage.parent, lineage.fork_step}].emplace_back("the current lineage's beginning");
    }
    if (const auto latest = catalog_.latest_complete(run.id, 0)) {
      always_[*latest].emplace_back("newest complete view");
      return {};
    }
    const auto newest = std::find_if(commits_.begin(), commits_.end(), [](const auto& commit) {
      return !commit.deleted && !commit.damaged;
    });
    if (newest != commits_.end()) always_[point_of(*newest)].emplace_back("newest commit");
    return {};
  }

  void choose() {
    std::vector<Candidate> candidates;
    candidates.reserve(commits_.size());
    for (const auto& [tag, point] : catalog_.tags(request_.run)) tags_[point].push_back(tag);
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
    const auto reasons = keep_reasons(request_.rules, candidates);
    size_t next = 0;
    kept_.resize(commits_.size());
    for (size_t i = 0; i < commits_.size(); ++i) {
      if (commits_[i].deleted) continue;
      kept_[i] = !reasons[next].empty();
      if (kept_[i]) {
        plan_.kept.push_back({candidates[next].point, candidates[next].time_ns, reasons[next]});
      }
      ++next;
    }
  }

  void remove_if_unneeded(const CommitInfo& commit, bool kept) {
    if (kept) return;
    const ViewPoint point = point_of(commit);
    PrunePlan::Removed removed;
    removed.kept_units = needs_.of(commit);
    removed.kept_tokens = !removed.kept_units.empty() || needs_.tokens_of(point);
    const bool as_it_is = removed.kept_units.size() == commit.units.size() &&
                          (removed.kept_tokens || !commit.kept_tokens);
    if (commit.deleted && as_it_is) return;
    removed.point = point;
    removed.time_ns = commit.time_ns;
    removed.again = commit.deleted;
    removed.reason = commit.deleted   ? "no view that is kept needs these units any more"
                     : commit.damaged ? "damaged, and no rule keeps it"
                                      : "no rule keeps it";
    if (!commit.deleted) removed.tags = tags_[point];
    for (const ckpt::UnitId unit : commit.units) {
      const bool stays =
          std::binary_search(removed.kept_units.begin(), removed.kept_units.end(), unit);
      if (!stays && unit < specs_->size()) removed.bytes += (*specs_)[unit].bytes;
    }
    plan_.removed.push_back(std::move(removed));
  }

  const Catalog& catalog_;
  const PruneRequest& request_;
  Needs needs_;
  PrunePlan plan_;
  std::shared_ptr<const std::vector<ckpt::UnitSpec>> specs_;
  std::vector<CommitInfo> commits_;  // newest first
  std::vector<bool> kept_;           // of these
  std::map<ViewPoint, std::vector<std::string>> always_;
  std::map<ViewPoint, std::vector<std::string>> tags_;
};

}  // namespace

Result<PrunePlan> plan_prune(const Catalog& catalog, const PruneRequest& request) {
  return Planner(catalog, request).plan();
}

}  // namespace ckptd
