#include "ckptd/history/foreign_catalog.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/selector.h"

namespace ckptd {

namespace {

CommitMark mark_of(const CommitInfo& commit) {
  return {commit.sequence, commit.time_ns, commit.snapshot};
}

bool has_mark(const std::vector<CommitMark>& ascending, const CommitMark& mark) {
  const auto found = std::lower_bound(ascending.begin(), ascending.end(), mark, earlier_mark);
  return found != ascending.end() && *found == mark;
}

std::string not_in_journal(const Catalog& catalog, const RecoveredStore& journal,
                           const RunInfo& run) {
  std::string why;
  catalog.visit_commits(run.id, [&](const CommitInfo& commit) {
    if (commit.sequence >= journal.end.next_sequence) return true;  // the journal lost its end
    if (!has_mark(journal.commits, mark_of(commit))) {
      why = fmt::format("its commit {} is not what the journal's record {} says",
                        ckpt::commit_name(run.name, commit.snapshot.lineage, commit.snapshot.step),
                        commit.sequence);
    }
    return false;
  });
  return why;
}

// `newest`: the run's last commit among the records that the catalog has. Only a later commit could
// have replaced it; a deletion leaves it in the catalog. In a catalog ahead of the journal either
// may come from records that the journal lost.
std::string not_in_catalog(const Catalog& catalog, const RecoveredStore& journal,
                           const CommitMark& newest) {
  const ckpt::SnapshotKey& key = newest.snapshot;
  const uint64_t known = catalog.applied_sequence();
  const auto removal = journal.removed.find(key.run);
  const bool removed = removal != journal.removed.end() && removal->second <= known;
  const auto run = catalog.run(key.run);
  if (run.ok() && run->removed_ns != 0) {
    if (removed || known >= journal.end.next_sequence) return {};
    return fmt::format("its run {} is removed, the journal's is not", run->name);
  }
  if (run.ok() && removed) {
    return fmt::format("its run {} is not removed, the journal's is", run->name);
  }
  const auto commit = catalog.commit(key.run, key.lineage, key.step);
  const bool there =
      commit && (mark_of(*commit) == newest || commit->sequence >= journal.end.next_sequence);
  if (run.ok() && there) return {};
  return fmt::format("it lacks the commit {} of the journal's record {}",
                     ckpt::commit_name(run.ok() ? run->name : fmt::format("run number {}", key.run),
                                       key.lineage, key.step),
                     newest.sequence);
}

// Each startup writes its own record: two copies of a store that diverged have different ones, even
// without new commits. The catalog lacks startups of an older ckptd, so the opposite comparison
// would prove nothing.
Result<std::string> other_start(const Catalog& catalog, const RecoveredStore& journal) {
  CKPT_ASSIGN(const std::vector<StartMark> starts, catalog.starts());
  for (const StartMark& start : starts) {
    if (start.sequence >= journal.end.next_sequence) break;  // the journal lost its end
    const auto there =
        std::ranges::lower_bound(journal.opened, start.sequence, {}, &StartMark::sequence);
    if (there != journal.opened.end() && *there == start) continue;
    return fmt::format("its start of ckptd at record {} is not the journal's", start.sequence);
  }
  return std::string();
}

std::vector<RunInfo> all_runs(const Catalog& catalog) {
  std::vector<RunInfo> runs = catalog.runs();
  std::ranges::copy(catalog.removed_runs(), std::back_inserter(runs));
  return runs;
}

}  // namespace

Result<std::string> why_foreign(const Catalog& catalog, const RecoveredStore& journal) {
  CKPT_TRY(catalog.store_health());
  CKPT_ASSIGN(std::string why, other_start(catalog, journal));
  if (!why.empty()) return why;
  for (const RunInfo& run : catalog.runs()) {
    why = not_in_journal(catalog, journal, run);
    CKPT_TRY(catalog.store_health());
    if (!why.empty()) return why;
  }
  const uint64_t known = catalog.applied_sequence();
  std::map<ckpt::RunId, const CommitMark*> newest;
  for (const CommitMark& mark : journal.commits) {
    if (mark.sequence <= known) newest[mark.snapshot.run] = &mark;
  }
  for (const auto& [run, mark] : newest) {
    why = not_in_catalog(catalog, journal, *mark);
    CKPT_TRY(catalog.store_health());
    if (!why.empty()) return why;
  }
  return why;
}

KnownRuns::KnownRuns(const Catalog& complete) {
  for (RunInfo& info : all_runs(complete)) {
    const ckpt::RunId id = info.id;
    runs_[id] = {std::move(info), complete.lineages(id).value()};
  }
}

std::string KnownRuns::why_foreign(const Catalog& older) const {
  for (const RunInfo& info : all_runs(older)) {
    const auto known = runs_.find(info.id);
    const bool same = known != runs_.end() && known->second.info.name == info.name &&
                      known->second.info.created_ns == info.created_ns &&
                      known->second.info.last_epoch >= info.last_epoch &&
                      (info.removed_ns == 0 || known->second.info.removed_ns != 0);
    if (!same) {
      return fmt::format("its run {} (number {}) is not the journal's", info.name, info.id);
    }
    if (known->second.info.removed_ns != 0) continue;  // its lineages are removed, too
    const std::vector<Lineage> lineages = older.lineages(info.id).value();
    const std::vector<Lineage>& all = known->second.lineages;
    const auto other = std::ranges::find_if(
        lineages, [&](const Lineage& one) { return std::ranges::find(all, one) == all.end(); });
    if (other == lineages.end()) continue;
    return fmt::format("its lineage {} of run {} is not the journal's", other->id, info.name);
  }
  return {};
}

}  // namespace ckptd
