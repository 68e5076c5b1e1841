// Startup: recovers the store, records damage that recovery finds in the journal, and builds the
// stages.
#include <spdlog/spdlog.h>

#include "ckptd/daemon_identity.h"
#include "ckptd/daemon_impl.h"
#include "ckptd/daemon_lost_end.h"
#include "ckptd/io/store_paths.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/persist/reclaim.h"
#include "ckptd/safeguards.h"
#include "formats/base/counted.h"
#include "formats/base/hash.h"

namespace ckptd {

Result<std::unique_ptr<Daemon>> Daemon::open(const Parts& parts, const Options& options) {
  auto impl = std::make_unique<Impl>(parts, options);
  CKPT_ASSERT_MSG(options.wall_clock_ns != nullptr, "the daemon needs a clock");
  if (const Status status = impl->open(); !status.ok()) {
    impl->close();
    return status.error();
  }
  return std::unique_ptr<Daemon>(new Daemon(std::move(impl)));
}

Daemon::Impl::Impl(const Parts& with_parts, const Options& with_options)
    : disk(with_parts.disk),
      executor(with_parts.executor),
      keeper(with_parts.keeper),
      options(with_options),
      turn(with_options.wall_clock_ns),
      history({.disk = with_parts.disk,
               .executor = with_parts.executor,
               .turn = turn,
               .open_catalog = with_parts.open_catalog,
               .apply_turn = with_options.apply_turn,
               .on_record = [this](const fb::RecordT& record) { on_record(record); }}),
      replies(sessions, with_parts.outbox),
      epochs(epochs_needs()),
      space(space_needs()),
      scrub(scrub_needs()) {}

namespace {

// The run that loses versions by this record: cached newest versions may be wrong.
std::optional<ckpt::RunId> run_of_loss(const fb::RecordT& record) {
  if (const auto* deleted = record.body.AsDeleted()) return deleted->run;
  if (const auto* removed = record.body.AsRunRemoved()) return removed->run;
  if (const auto* damaged = record.body.AsCommitDamaged()) return damaged->run;
  return std::nullopt;
}

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

void log_recovered(const RecoveredStore& store, size_t runs, uint64_t bytes) {
  const std::string id = ckpt::base::to_hex(store.id);
  log_event(spdlog::level::info, "recovered",
            {{"store", id}, {"runs", runs}, {"journal_bytes", bytes}, {"clean", store.clean}},
            "store {}: {}, journal of {} bytes, last closed {}", id,
            ckpt::base::counted(runs, "run"), bytes, store.clean ? "cleanly" : "by a crash");
}

// A new store has no records of an earlier startup.
void log_catalog_made(const RecoveredStore& store, uint64_t records) {
  if (store.starts == 0) return;
  log_event(spdlog::level::info, "catalog_made", {{"records", records}},
            "there was no catalog: it was made from {} of the journal",
            ckpt::base::counted(records, "record"));
}

}  // namespace

// Caches outside of the catalog follow the record that is about to be applied.
void Daemon::Impl::on_record(const fb::RecordT& record) {
  space.on_record(record);
  if (const auto run = run_of_loss(record)) newest_by_run.erase(*run);
}

Status Daemon::Impl::open() {
  CKPT_ASSIGN(const bool finished, finish_salvage());
  CKPT_ASSIGN(RecoveredStore store, recover_store(disk, options.random_seed));
  history.use(store);
  CKPT_TRY(ensure_segments_directory(disk, store));
  CKPT_ASSIGN(const SegmentFindings found, read_segment_headers(disk, store));
  CKPT_TRY(check_segments_are_ours(found, store));
  CKPT_TRY(history.keeper().open(store));
  // The last check: so far nothing of the store was changed.
  const bool lost_records =
      store.damage || history.keeper().knows_more_than(history.last_sequence());
  if (!finished && !lost_records) CKPT_TRY(check_journal_is_newest(disk, found, store));
  CKPT_TRY(history.keeper().settle());
  history.take_catalog();
  const bool no_catalog = history.catalog().applied_sequence() == 0;
  CKPT_ASSIGN(bool salvaged, salvage(store));
  salvaged = salvaged || finished;
  CKPT_ASSIGN(const LostEnd lost_end, cut_end(disk, store, no_catalog));
  const uint64_t known = history.catalog().applied_sequence();
  CKPT_TRY(history.keeper().go_on_without_disk());
  Status filled = history.keeper().catch_up(history.journal_end());
  if (!filled.ok() && !history.catalog().health().ok()) filled = history.heal();
  CKPT_TRY(filled);
  if (no_catalog) log_catalog_made(store, history.catalog().applied_sequence());
  CKPT_ASSIGN(const auto lost_names,
              history.read([&] { return Result(names_of_lost(lost_end, history.catalog())); }));
  tell_lost_end(lost_end, lost_names);
  CKPT_ASSIGN(const bool on_record, history.begin_journal(store));
  CKPT_TRY(mark_damaged(commits_after(store, known)));
  if (!segments) segments = std::make_unique<SegmentReader>(disk, history.store_id());

  CKPT_TRY(recover_runs(store));
  // Not after a doubtful end of the journal: unlisted extents may be the last copy.
  const bool in_doubt = store.torn_bytes > 0 || salvaged;
  if (!in_doubt && reclaim(std::move(store.listed))) CKPT_TRY(forget_older_journal(disk));
  space.open(disk, *segments);
  open_staging();
  io_shape = options.find_io_shape();
  persist = std::make_unique<Persist>(
      disk, executor, history.journal(),
      Persist::Options{.store = history.store_id(),
                       .first_segment = store.next_segment,
                       .first_sequence = first_extent(store, on_record),
                       .segment_bytes = options.segment_bytes,
                       .bytes_in_flight_max = io_shape.depth * io_shape.bytes,
                       .write_piece_bytes = io_shape.bytes,
                       .reserve_bytes = options.disk_reserve_bytes,
                       .stopwatch = options.stopwatch,
                       .on_dead = [this](const ExtentPlace& extent) {
                         space.add_unlisted({extent.segment, extent.offset, extent.bytes});
                         space.want_round();
                       }});
  open_readers_back();
  scrub.open(restore_context());
  history.start_turns();
  log_recovered(store, history.catalog().runs().size(), history.journal().bytes());
  return {};
}

// Opens the readers of earlier versions, for dedup and deltas.
void Daemon::Impl::open_readers_back() {
  Comparer::Options comparing{.bytes_min = options.same_bytes_min};
  comparing.on_abandoned = [this] {  // its reads may have kept a dead file open
    space.files_closed();
  };
  comparer = std::make_unique<Comparer>(restore_context(), std::move(comparing));
  base_reader = std::make_unique<BaseReader>(restore_context(), options.same_bytes_min);
}

void Daemon::Impl::open_staging() {
  Staging::Options of_staging = options.staging;
  of_staging.keeper = keeper;
  of_staging.store = history.store_id();
  staging = std::make_unique<Staging>(disk, executor, of_staging);
  staging->set_on_slabs_ready([this](ArenaId arena) { arenas_ready.insert(arena); });
  take_back_memory();
}

namespace {

// The newest commit of the run that views may use; nullopt: none.
std::optional<CommitInfo> newest_commit(const Catalog& catalog, ckpt::RunId run) {
  std::optional<CommitInfo> newest;
  catalog.visit_commits(run, [&](const CommitInfo& commit) {
    if (!commit.damaged && !commit.deleted) newest = commit;
    return !newest;
  });
  return newest;
}

}  // namespace

// Continues all numbers, so that none is assigned twice; members of the last epochs may rejoin.
// Metrics of the runs continue.
Status Daemon::Impl::recover_runs(RecoveredStore& store) {
  for (const RunInfo& removed : history.catalog().removed_runs()) {
    next_run = std::max(next_run, removed.id + 1);
  }
  for (const RunInfo& run : history.catalog().runs()) {
    next_run = std::max(next_run, run.id + 1);
    const fb::EpochOpenedT& epoch = store.epochs[run.id];
    // A later epoch than the journal's was salvaged: only its number is known.
    const bool known = epoch.epoch >= run.last_epoch;
    const bool over = store.epochs_over.contains(run.id);
    epochs.groups_for_recovery().recovered(run.id, run.last_epoch, known && !over ? epoch.size : 0,
                                           epoch.lineage,
                                           epoch.elastic ? epoch.members : std::vector<MemberId>(),
                                           epoch.goes_on || epoch.had_gone_on);
    CKPT_ASSIGN(const auto newest,
                history.read([&] { return Result(newest_commit(history.catalog(), run.id)); }));
    if (newest) health_watch.snapshot_durable(run.name, durable_of(*newest));
  }
  return {};
}

// Reclaims preallocated space without commits, extents of unfinished snapshots, and files with only
// deleted commits. True: nothing unlisted is left.
bool Daemon::Impl::reclaim(ListedExtents listed) {
  Status status;
  for (auto segment = listed.begin(); status.ok() && segment != listed.end();) {
    const auto live = history.catalog().live_extents(segment->first);
    if (!live.ok()) status = live.error();
    segment = live.ok() && *live == 0 ? listed.erase(segment) : std::next(segment);
  }
  const Result<Reclaimed> reclaimed =
      status.ok() ? reclaim_unlisted(disk, std::move(listed)) : status.error();
  if (!reclaimed.ok()) {
    spdlog::warn("space was not given back: {}", reclaimed.error().message);
    return false;
  }
  for (const ExtentPlace& stretch : reclaimed->left) {
    space.add_unlisted({stretch.segment, stretch.offset, stretch.bytes});
  }
  return reclaimed->complete;
}

// Compares the headers of the commit's extents with its record.
Result<RecoveryCheck> Daemon::Impl::check_commit(const Catalog& index, const SnapshotKey& key,
                                                 ExtentPart part, bool log_at_debug) {
  const auto level = log_at_debug ? spdlog::level::debug : spdlog::level::err;
  const auto info = index.commit(key.run, key.lineage, key.step);
  CKPT_TRY(index.health());
  if (!info || info->damaged || info->deleted || info->snapshot != key) return RecoveryCheck();
  const auto commit = index.record(key.run, key.lineage, key.step);
  CKPT_TRY(index.health());
  if (!commit) return RecoveryCheck();
  CKPT_ASSIGN(const auto units, index.units(key.run));
  if (!segments) segments = std::make_unique<SegmentReader>(disk, history.store_id());
  const Status held = check_commit_headers(*segments, *commit, *units, part);
  if (held.ok()) return RecoveryCheck();
  const RunInfo run = index.run(key.run).value();
  const bool read =
      held.error().code == ErrorCode::kCorrupt || held.error().code == ErrorCode::kNotFound;
  if (!read && !left_out(Safeguard::kUnreadStays)) {
    // A later read may succeed. A restore falls back if not.
    spdlog::log(level, "run {} step {}: could not be checked: {}", run.name, key.step,
                held.error().message);
    return RecoveryCheck{.damaged = {}, .unread = true, .reason = held.error().message};
  }
  log_event(level, "commit_damaged",
            {{"run", run.name},
             {"lineage", key.lineage},
             {"step", key.step},
             {"reason", held.error().message}},
            "run {} step {}: damaged: {}", run.name, key.step, held.error().message);
  fb::CommitDamagedT damaged;
  damaged.run = key.run;
  damaged.lineage = key.lineage;
  damaged.step = key.step;
  damaged.reason = held.error().message;
  damaged.time_ns = turn.wall_clock_ns();
  return RecoveryCheck{
      .damaged = make_record(std::move(damaged)), .unread = false, .reason = held.error().message};
}

Status Daemon::Impl::mark_damaged(const std::vector<SnapshotKey>& replayed) {
  std::vector<fb::RecordT> records;
  for (const SnapshotKey& key : replayed) {
    CKPT_ASSIGN(RecoveryCheck check, history.read([&] {
      return check_commit(history.catalog(), key, ExtentPart::kWhole, /*log_at_debug=*/false);
    }));
    if (check.damaged) records.push_back(std::move(*check.damaged));
  }
  if (records.empty()) return {};
  const Status recorded = history.record_blocking(records);
  if (!recorded.ok() && recorded.error().code == ErrorCode::kResourceExhausted) {
    // Restores and verify detect the damage themselves, and the next startup checks again.
    spdlog::warn("damage that was found is not on record: {}", recorded.error().message);
    return {};
  }
  return recorded;
}

}  // namespace ckptd
