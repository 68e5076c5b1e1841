#include "ckptd/recovery/recovery.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "ckptd/limits.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/persist/reclaim.h"
#include "ckptd/recovery/commit_checker.h"
#include "ckptd/recovery/identity.h"
#include "ckptd/recovery/journal_salvage.h"
#include "ckptd/recovery/lost_end.h"
#include "ckptd/recovery/lost_segments.h"
#include "formats/base/counted.h"
#include "formats/selector.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::SnapshotKey;

namespace {

// Commits that a catalog lacks whose last record is `known`.
std::vector<SnapshotKey> commits_after(const RecoveredStore& store, uint64_t known) {
  std::vector<SnapshotKey> commits;
  for (const CommitMark& commit : store.commits) {
    if (commit.sequence > known) commits.push_back(commit.snapshot);
  }
  return commits;
}

// The first extent number of this startup, above all numbers that earlier startups may have used.
// Its upper half is the number of the startup, for check_journal_is_newest(). A startup without a
// record uses the upper half of the numbers of the last recorded one.
uint64_t first_extent(const RecoveredStore& store, bool on_record) {
  constexpr uint64_t kHalf = uint64_t{1} << 31;
  return on_record ? ((store.starts + 1) << 32) + 1 : (store.starts << 32) + kHalf + 1;
}

// A new store has no records of an earlier startup.
void log_catalog_made(const RecoveredStore& store, uint64_t records) {
  if (store.starts == 0) return;
  log_event(spdlog::level::info, "catalog_made", {{"records", records}},
            "there was no catalog: it was made from {} of the journal",
            ckpt::base::counted(records, "record"));
}

// The newest commit of the run that views may use; nullopt: none.
std::optional<CommitInfo> newest_commit(const Catalog& catalog, ckpt::RunId run) {
  std::optional<CommitInfo> newest;
  catalog.visit_commits(run, [&](const CommitInfo& commit) {
    if (!commit.damaged && !commit.deleted) newest = commit;
    return !newest;
  });
  return newest;
}

// `lifted`: the records that lift the marks of these commits.
void log_mended(const Catalog& catalog, const std::vector<fb::RecordT>& lifted) {
  for (size_t i = 0; i < lifted.size(); ++i) {
    const fb::CommitDamagedT& commit = *lifted[i].body.AsCommitDamaged();
    const std::string run = catalog.run(commit.run).value().name;
    log_event(i < limits::kDamageLinesMax ? spdlog::level::info : spdlog::level::debug,
              "commit_mended", {{"run", run}, {"lineage", commit.lineage}, {"step", commit.step}},
              "{}: its bytes are there again: it counts as good from now on",
              ckpt::commit_name(run, commit.lineage, commit.step));
  }
  if (lifted.size() <= limits::kDamageLinesMax) return;
  spdlog::info("{} more commits count as good again", lifted.size() - limits::kDamageLinesMax);
}

// One recovery: lives inside recover().
class Recovery {
 public:
  explicit Recovery(const RecoveryNeeds& needs)
      : disk_(needs.disk),
        history_(needs.history),
        random_seed_(needs.random_seed),
        checker_(needs.disk, needs.history, needs.turn),
        salvage_(needs.disk, needs.history, needs.turn, checker_, needs.random_seed) {}

  Result<Recovered> run();

 private:
  Status check_identity(const RecoveredStore& store, bool finished_salvage);
  Status fill_catalog(const RecoveredStore& store, const LostEnd& lost_end, bool no_catalog);
  Status mark_damaged(const std::vector<SnapshotKey>& commits);
  Status lift_marks(const RecoveredStore& store);
  Status list_runs(RecoveredStore& store, Recovered& recovered);
  bool reclaim(RecoveredStore& store, std::vector<SpaceRange>& left);

  Disk& disk_;
  History& history_;
  std::vector<SnapshotKey> damaged_;  // marked by this start
  std::string lost_end_text_;
  const uint64_t random_seed_;
  CommitChecker checker_;
  JournalSalvage salvage_;
};

Result<Recovered> Recovery::run() {
  CKPT_ASSIGN(const bool finished, salvage_.finish());
  CKPT_ASSIGN(RecoveredStore store, recover_store(disk_, random_seed_));
  history_.use(store);
  CKPT_TRY(check_identity(store, finished));

  CKPT_TRY(history_.keeper().settle());
  history_.take_catalog();
  const bool no_catalog = history_.catalog().applied_sequence() == 0;
  CKPT_ASSIGN(bool salvaged, salvage_.salvage(store));
  salvaged = salvaged || finished;
  CKPT_ASSIGN(const LostEnd lost_end, cut_end(disk_, store, no_catalog));
  const uint64_t known = history_.catalog().applied_sequence();
  CKPT_TRY(fill_catalog(store, lost_end, no_catalog));
  CKPT_ASSIGN(const bool on_record, history_.begin_journal(store));
  // The catalog knows the commits up to `known` from earlier starts.
  CKPT_ASSIGN(const bool lost,
              history_.read([&] { return any_segment_is_lost(disk_, store, history_.catalog()); }));
  CKPT_TRY(mark_damaged(commits_after(store, lost ? 0 : known)));
  CKPT_TRY(lift_marks(store));

  Recovered recovered;
  recovered.next_segment = store.next_segment;
  recovered.first_extent = first_extent(store, on_record);
  recovered.clean = store.clean;
  recovered.segments = checker_.take_segments();
  CKPT_TRY(list_runs(store, recovered));
  for (const MarkedCommit& marked : store.marked) {
    recovered.damaged.push_back(
        {.run = marked.run, .lineage = marked.point.lineage, .step = marked.point.step});
  }
  recovered.lost_end = lost_end_text_;
  recovered.damaged.insert(recovered.damaged.end(), damaged_.begin(), damaged_.end());
  // Not after a doubtful end of the journal: unlisted extents may be the last copy.
  const bool in_doubt = store.torn_bytes > 0 || salvaged;
  if (!in_doubt && reclaim(store, recovered.unlisted)) {
    CKPT_TRY(forget_older_journal(disk_));
  }
  return recovered;
}

// Changes no existing part of the store: after an error the user finds it as it was.
Status Recovery::check_identity(const RecoveredStore& store, bool finished_salvage) {
  CKPT_TRY(ensure_segments_directory(disk_, store));
  CKPT_ASSIGN(const SegmentFindings found, read_segment_headers(disk_, store));
  CKPT_TRY(check_segments_are_ours(found, store));
  CKPT_TRY(history_.keeper().open(store));
  const bool lost_records = store.damage || history_.keeper().is_ahead_of(history_.last_sequence());
  if (finished_salvage || lost_records) return {};
  return check_journal_is_newest(disk_, found, store);
}

Status Recovery::fill_catalog(const RecoveredStore& store, const LostEnd& lost_end,
                              bool no_catalog) {
  CKPT_TRY(history_.keeper().continue_without_disk());
  Status filled = history_.keeper().catch_up(history_.journal_end());
  if (!filled.ok() && !history_.catalog().health().ok()) filled = history_.heal();
  CKPT_TRY(filled);
  if (no_catalog) log_catalog_made(store, history_.catalog().applied_sequence());
  CKPT_ASSIGN(const auto lost_names,
              history_.read([&] { return Result(names_of_lost(lost_end, history_.catalog())); }));
  lost_end_text_ = lost_end_text(lost_end, lost_names);
  if (!lost_end_text_.empty()) spdlog::warn("{}: {}", lost_end_text_, kLostEndRemedy);
  return {};
}

Status Recovery::mark_damaged(const std::vector<SnapshotKey>& commits) {
  std::vector<fb::RecordT> records;
  for (const SnapshotKey& key : commits) {
    CKPT_ASSIGN(RecoveryCheck check, history_.read([&] {
      return checker_.check(history_.catalog(), key, ExtentPart::kWhole, /*log_at_debug=*/false);
    }));
    if (!check.damaged) continue;
    records.push_back(std::move(*check.damaged));
    damaged_.push_back(key);
  }
  checker_.log_left_out();
  if (records.empty()) return {};
  Status recorded = history_.record_blocking(records);
  if (!recorded.ok() && recorded.error().code == ErrorCode::kResourceExhausted) {
    // Restores and verify detect the damage themselves, and the next startup checks again.
    spdlog::warn("damage that was found is not on record: {}", recorded.error().message);
    return {};
  }
  return recorded;
}

// An operator may have put a segment file back since the mark. A commit counts again on the same
// proof as a replayed one: all headers match. Restores and verify check the payload.
Status Recovery::lift_marks(const RecoveredStore& store) {
  std::vector<fb::RecordT> records;
  for (const MarkedCommit& marked : store.marked) {
    CKPT_ASSIGN(auto lifted,
                history_.read([&] { return checker_.lift_mark(history_.catalog(), marked); }));
    if (lifted) records.push_back(*std::move(lifted));
  }
  if (records.empty()) return {};
  Status recorded = history_.record_blocking(records);
  if (recorded.ok()) {
    log_mended(history_.catalog(), records);
  } else if (recorded.error().code == ErrorCode::kResourceExhausted) {
    spdlog::warn("{} stay marked as damaged, although their bytes are there again: {}",
                 ckpt::base::counted(records.size(), "commit"), recorded.error().message);
    return {};
  }
  return recorded;
}

Status Recovery::list_runs(RecoveredStore& store, Recovered& recovered) {
  for (const RunInfo& removed : history_.catalog().removed_runs()) {
    recovered.next_run = std::max(recovered.next_run, removed.id + 1);
  }
  for (const RunInfo& run : history_.catalog().runs()) {
    recovered.next_run = std::max(recovered.next_run, run.id + 1);
    const fb::EpochOpenedT& epoch = store.epochs[run.id];
    // A later epoch than the journal's was salvaged: only its number is known.
    const bool known = epoch.epoch >= run.last_epoch;
    const bool over = store.epochs_over.contains(run.id);
    CKPT_ASSIGN(auto newest,
                history_.read([&] { return Result(newest_commit(history_.catalog(), run.id)); }));
    recovered.runs.push_back({.id = run.id,
                              .name = run.name,
                              .epoch = run.last_epoch,
                              .rejoining = known && !over ? epoch.size : 0,
                              .lineage = epoch.lineage,
                              .members = epoch.elastic ? epoch.members : std::vector<uint64_t>(),
                              .survivors_continued = epoch.goes_on || epoch.had_gone_on,
                              .newest = std::move(newest)});
  }
  return {};
}

// Reclaims preallocated space without commits, extents of unfinished snapshots, and files with only
// deleted commits. True: nothing unlisted is left, except what `left` has.
bool Recovery::reclaim(RecoveredStore& store, std::vector<SpaceRange>& left) {
  ListedExtents listed = std::move(store.listed);
  Status status;
  for (auto segment = listed.begin(); status.ok() && segment != listed.end();) {
    const auto live = history_.catalog().live_extents(segment->first);
    if (!live.ok()) status = live.error();
    segment = live.ok() && *live == 0 ? listed.erase(segment) : std::next(segment);
  }
  const Result<Reclaimed> reclaimed =
      status.ok() ? reclaim_unlisted(disk_, store.id, std::move(listed)) : status.error();
  if (!reclaimed.ok()) {
    spdlog::warn("space was not given back: {}", reclaimed.error().message);
    return false;
  }
  for (const ExtentPlace& stretch : reclaimed->left) {
    left.push_back({stretch.segment, stretch.offset, stretch.bytes});
  }
  return reclaimed->complete;
}

}  // namespace

Result<Recovered> recover(const RecoveryNeeds& needs) { return Recovery(needs).run(); }

}  // namespace ckptd
