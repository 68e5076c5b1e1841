// Random histories, and the naive model of them that the catalog must agree with.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "tests/ckptd/catalog/records.h"

namespace ckptd {

// Keeps everything in lists, and answers by looking at all of it.
struct HistoryModel {
  struct Commit {
    ViewPoint point;
    std::set<ckpt::UnitId> units;
    bool full = false;
    bool damaged = false;
    bool deleted = false;  // then `units` are those that stay
  };
  std::vector<ckpt::UnitSpec> units;
  std::map<ckpt::LineageId, Lineage> lineages;
  std::vector<Commit> commits;  // in the order of the journal
  std::map<std::string, ViewPoint> tags;

  bool exists(ViewPoint point) const {
    return std::any_of(commits.begin(), commits.end(),
                       [&](const Commit& commit) { return commit.point == point; });
  }
  // How far back the commit's lineage lies in the view: 0 its own, 1 the parent, ...; nullopt if
  // the view does not see it.
  std::optional<int> distance(ViewPoint commit, ViewPoint view) const {
    if (commit.step > view.step) return std::nullopt;
    if (commit.lineage == view.lineage) return 0;
    const auto lineage = lineages.find(view.lineage);
    if (lineage == lineages.end() || lineage->second.parent == 0) return std::nullopt;
    const auto further =
        distance(commit, {lineage->second.parent, std::min(view.step, lineage->second.fork_step)});
    return further ? std::optional(*further + 1) : std::nullopt;
  }
  // What the view holds of the unit; if `before` is given, what comes before it.
  std::optional<ViewPoint> newest(ckpt::UnitId unit, ViewPoint view,
                                  std::optional<ViewPoint> before = std::nullopt) const {
    std::optional<std::pair<int, ViewPoint>> best;
    const auto limit = before ? distance(*before, view) : std::optional<int>(0);
    if (!limit) return std::nullopt;
    for (const Commit& commit : commits) {
      const auto away = distance(commit.point, view);
      if (!away || commit.damaged || !commit.units.contains(unit)) continue;
      const bool too_new =
          before && (*away < *limit || (*away == *limit && commit.point.step >= before->step));
      if (too_new) continue;
      const bool better = !best || *away < best->first ||
                          (*away == best->first && commit.point.step > best->second.step);
      if (better) best = {*away, commit.point};
    }
    return best ? std::optional(best->second) : std::nullopt;
  }
  bool complete(ViewPoint view) const {
    for (ckpt::UnitId unit = 0; unit < units.size(); ++unit) {
      if (!newest(unit, view)) return false;
    }
    return !units.empty() && lineages.contains(view.lineage);
  }
  // Tries every commit that the lineage sees.
  std::optional<ViewPoint> latest_complete(ckpt::LineageId lineage) const {
    std::optional<std::pair<int, ViewPoint>> best;
    for (const Commit& commit : commits) {
      const auto away = distance(commit.point, {lineage, ~ckpt::Step{0}});
      if (!away || commit.damaged || commit.deleted || !complete(commit.point)) continue;
      const bool better = !best || *away < best->first ||
                          (*away == best->first && commit.point.step > best->second.step);
      if (better) best = {*away, commit.point};
    }
    return best ? std::optional(best->second) : std::nullopt;
  }
};

struct History {
  HistoryModel model;
  std::vector<fb::RecordT> records;
};

class HistoryMaker {
 public:
  explicit HistoryMaker(uint64_t seed) : random_(seed) {}

  History make(size_t events) {
    add(store_opened());
    add(run_created());
    add_units(test_units(1, 2));
    add_lineage(0, 0);
    for (size_t i = 0; i < events; ++i) add_event();
    return std::move(history_);
  }

 private:
  HistoryModel& model() { return history_.model; }
  uint64_t draw(uint64_t bound) { return random_() % bound; }
  void add(fb::RecordT record) { history_.records.push_back(std::move(record)); }

  void add_event() {
    const uint64_t kind = draw(100);
    if (kind < 60) return add_commit();
    if (kind < 70) return add_lineage(any_lineage(), draw(40));
    if (kind < 78) return damage();
    if (kind < 86) return remove();
    if (kind < 93) return tag();
    if (kind < 95) return add(epoch_opened(draw(100)));
    if (kind < 97) return add(snapshot_refused({any_lineage(), draw(40)}, any_alarms()));
    ckpt::UnitSpec late;
    late.name = fmt::format("late.{}", model().units.size());
    late.bytes = 1 + draw(50);
    add_units({late});
  }

  std::vector<fb::Alarm> any_alarms() {
    std::vector<fb::Alarm> alarms;
    for (uint64_t i = draw(4); i > 0; --i) {
      alarms.emplace_back(static_cast<ckpt::UnitId>(draw(model().units.size())),
                          static_cast<fb::AlarmKind>(draw(3)), draw(40));
    }
    return alarms;
  }
  ckpt::LineageId any_lineage() {
    return static_cast<ckpt::LineageId>(1 + draw(model().lineages.size()));
  }
  void add_units(const std::vector<ckpt::UnitSpec>& units) {
    add(units_registered(units, static_cast<ckpt::UnitId>(model().units.size())));
    model().units.insert(model().units.end(), units.begin(), units.end());
  }
  void add_lineage(ckpt::LineageId parent, ckpt::Step fork_step) {
    const auto id = static_cast<ckpt::LineageId>(model().lineages.size() + 1);
    add(lineage_opened(id, parent, fork_step));
    model().lineages[id] = {id, parent, fork_step};
  }

  void add_commit() {
    CommitSpec spec;
    spec.point = {any_lineage(), draw(40)};
    auto& commits = model().commits;
    const auto same = std::find_if(commits.begin(), commits.end(),
                                   [&](const auto& commit) { return commit.point == spec.point; });
    // Only what was damaged or deleted is ever committed again.
    if (same != commits.end() && !same->damaged && !same->deleted) return;
    if (same != commits.end()) commits.erase(same);
    spec.place = 100 + history_.records.size();  // no two commits lie in the same place
    spec.full = draw(3) == 0;
    spec.pieces = 1 + draw(4);
    spec.epoch = 1 + draw(5);
    spec.attempt = static_cast<uint32_t>(draw(3));
    for (ckpt::UnitId unit = 0; unit < model().units.size(); ++unit) {
      if (spec.full || draw(3) == 0) spec.units.push_back(unit);
    }
    if (spec.units.empty()) spec.units.push_back(0);
    if (draw(2) == 0) spec.tokens = {{0, 0, draw(1000)}, {0, 1, 500 + draw(500)}};
    if (!spec.tokens.empty() && draw(2) == 0) spec.lost = {{0, 1, 1 + draw(500)}};
    spec.alarms = any_alarms();
    add(committed(spec, model().units));
    commits.push_back({spec.point, {spec.units.begin(), spec.units.end()}, spec.full});
  }
  HistoryModel::Commit* any_commit() {
    if (model().commits.empty()) return nullptr;
    return &model().commits[draw(model().commits.size())];
  }
  void damage() {
    HistoryModel::Commit* commit = any_commit();
    if (commit == nullptr) return;
    add(commit_damaged(commit->point, "its header"));
    if (!commit->deleted) commit->damaged = true;
  }
  void remove() {
    HistoryModel::Commit* commit = any_commit();
    if (commit == nullptr) return;
    std::set<ckpt::UnitId> kept;
    for (const ckpt::UnitId unit : commit->units) {
      if (draw(3) == 0) kept.insert(unit);
    }
    add(deleted(commit->point, "retention", {kept.begin(), kept.end()}, draw(2) == 0));
    commit->deleted = true;
    commit->units = std::move(kept);
  }
  void tag() {
    const std::string name = fmt::format("tag{}", draw(4));
    HistoryModel::Commit* commit = any_commit();
    if (commit == nullptr || draw(4) == 0) {
      add(untagged(name));
      model().tags.erase(name);
      return;
    }
    add(tagged(commit->point, name));
    model().tags[name] = commit->point;
  }

  std::mt19937_64 random_;
  History history_;
};

// Every answer of the catalog about the run, as one text: two catalogs with the same text are equal
// for all who ask.
std::string everything(const Catalog& catalog, ckpt::RunId run = kTestRun);

}  // namespace ckptd
