#include "ckptd/retention/view_needs.h"

#include <algorithm>
#include <iterator>

namespace ckptd {

// One pass forward through a lineage: each unit's newest version, and the views that saw it.
class ViewNeeds::Walk {
 public:
  using Needed = std::map<ViewPoint, std::vector<ckpt::UnitId>>;

  Walk(ckpt::LineageId lineage, size_t units, Needed& needed)
      : lineage_(lineage), newest_(units), needed_(needed) {}

  void commit(ckpt::Step step, const std::vector<ckpt::UnitId>& units) {
    for (const ckpt::UnitId unit : units) {
      if (unit >= newest_.size()) continue;
      settle(unit);
      newest_[unit] = {step, views_, true, false};
    }
  }
  void view() { ++views_; }
  // Flags the units among `units` that the lineage has not had so far; takes the others as needed.
  std::vector<bool> take(const std::vector<bool>& units) {
    std::vector<bool> missing(units.size());
    for (ckpt::UnitId unit = 0; unit < units.size(); ++unit) {
      if (!units[unit]) continue;
      missing[unit] = !newest_[unit].there;
      newest_[unit].asked = true;
    }
    return missing;
  }
  std::vector<bool> missing() const {
    std::vector<bool> missing(newest_.size());
    for (ckpt::UnitId unit = 0; unit < newest_.size(); ++unit) missing[unit] = !newest_[unit].there;
    return missing;
  }
  void end() {
    for (ckpt::UnitId unit = 0; unit < newest_.size(); ++unit) settle(unit);
  }

 private:
  struct Newest {
    ckpt::Step step = 0;
    size_t views_before = 0;
    bool there = false;
    bool asked = false;  // by a later lineage
  };

  void settle(ckpt::UnitId unit) {
    const Newest& newest = newest_[unit];
    if (!newest.there || (views_ == newest.views_before && !newest.asked)) return;
    needed_[{lineage_, newest.step}].push_back(unit);
  }

  const ckpt::LineageId lineage_;
  std::vector<Newest> newest_;
  Needed& needed_;
  size_t views_ = 0;
};

void ViewNeeds::add_view(ViewPoint view) {
  asked_[view.lineage][view.step].all = true;
  tokens_asked_[view.lineage].insert(view.step);
}

void ViewNeeds::add_version(ViewPoint commit, ckpt::UnitId unit) { units_[commit].push_back(unit); }

void ViewNeeds::resolve() {
  const auto lineages = catalog_.lineages(run_);
  const auto specs = catalog_.units(run_);
  if (!lineages.ok() || !specs.ok()) return;
  std::map<ckpt::LineageId, Lineage> by_id;
  std::map<ckpt::LineageId, size_t> children;  // not visited yet
  for (const Lineage& lineage : *lineages) {
    by_id[lineage.id] = lineage;
    ++children[lineage.parent];
  }
  std::vector<Lineage> ready;
  std::ranges::copy_if(*lineages, std::back_inserter(ready),
                       [&](const Lineage& lineage) { return !children.contains(lineage.id); });
  while (!ready.empty()) {
    const Lineage lineage = ready.back();
    ready.pop_back();
    resolve(lineage, (*specs)->size());
    resolve_tokens(lineage);
    const auto parent = by_id.find(lineage.parent);
    if (--children[lineage.parent] == 0 && parent != by_id.end()) ready.push_back(parent->second);
  }
  for (auto& [commit, units] : units_) {
    std::ranges::sort(units);
    units.erase(std::unique(units.begin(), units.end()), units.end());
  }
}

void ViewNeeds::resolve(const Lineage& lineage, size_t units) {
  const auto found = asked_.find(lineage.id);
  if (found == asked_.end()) return;
  Walk walk(lineage.id, units, units_);
  bool fork_asked = false;
  const auto answer = [&](ckpt::Step step, Asked& asked) {
    if (asked.all) {
      walk.view();
      if (lineage.parent == 0 || fork_asked) return;
      ask_parent(lineage, step, walk.missing());
      fork_asked = step >= lineage.fork_step;
    } else {
      asked.units.resize(units);
      ask_parent(lineage, step, walk.take(asked.units));
    }
  };
  auto next = found->second.begin();
  const auto end = found->second.end();
  catalog_.visit_units(run_, {lineage.id, std::prev(end)->first},
                       [&](ckpt::Step step, const std::vector<ckpt::UnitId>& brought) {
                         for (; next != end && next->first < step; ++next) {
                           answer(next->first, next->second);
                         }
                         walk.commit(step, brought);
                       });
  for (; next != end; ++next) answer(next->first, next->second);
  walk.end();
  asked_.erase(found);
}

void ViewNeeds::ask_parent(const Lineage& lineage, ckpt::Step step,
                           const std::vector<bool>& missing) {
  if (lineage.parent == 0 || std::ranges::find(missing, true) == missing.end()) return;
  std::vector<bool>& units = asked_[lineage.parent][std::min(step, lineage.fork_step)].units;
  units.resize(missing.size());
  for (ckpt::UnitId unit = 0; unit < missing.size(); ++unit) {
    if (missing[unit]) units[unit] = true;
  }
}

// The newest step first: counts that it sees are also seen by all later steps.
void ViewNeeds::resolve_tokens(const Lineage& lineage) {
  const auto asked = tokens_asked_.extract(lineage.id);
  if (asked.empty()) return;
  const std::set<ckpt::Step>& steps = asked.mapped();
  bool none_left = false;
  for (auto step = steps.rbegin(); step != steps.rend();) {
    const auto newest =
        none_left ? std::nullopt : catalog_.newest_tokens_in(run_, {lineage.id, *step});
    none_left = !newest;
    if (newest) {
      tokens_.insert({lineage.id, *newest});
      while (step != steps.rend() && *step >= *newest) ++step;
    } else {
      tokens_asked_[lineage.parent].insert(std::min(*step, lineage.fork_step));
      ++step;
    }
  }
}

std::vector<ckpt::UnitId> ViewNeeds::of(const CommitInfo& commit) const {
  std::vector<ckpt::UnitId> needed;
  const auto found = units_.find({commit.snapshot.lineage, commit.snapshot.step});
  if (found == units_.end() || commit.damaged) return needed;
  std::ranges::set_intersection(commit.units, found->second, std::back_inserter(needed));
  return needed;
}

}  // namespace ckptd
