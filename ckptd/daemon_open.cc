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
      outbox(with_parts.outbox),
      keeper(with_parts.keeper),
      options(with_options),
      catalog_keeper(with_parts.disk, with_parts.open_catalog) {}

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

Status Daemon::Impl::open() {
  CKPT_ASSIGN(const bool finished, finish_salvage());
  CKPT_ASSIGN(RecoveredStore store, recover_store(disk, options.random_seed));
  use(store);
  CKPT_TRY(ensure_segments_directory(disk, store));
  CKPT_ASSIGN(const SegmentFindings found, read_segment_headers(disk, store));
  CKPT_TRY(check_segments_are_ours(found, store));
  CKPT_TRY(catalog_keeper.open(store));
  // The last check: so far nothing of the store was changed. Only a catalog that RocksDB cannot
  // open was moved to catalog.broken.
  const bool lost_records = store.damage || catalog_keeper.knows_more_than(last_sequence);
  if (!finished && !lost_records) CKPT_TRY(check_journal_is_newest(disk, found, store));
  CKPT_TRY(catalog_keeper.settle());
  catalog = catalog_keeper.catalog();
  const bool no_catalog = catalog->applied_sequence() == 0;
  CKPT_ASSIGN(bool salvaged, salvage(store));
  salvaged = salvaged || finished;
  CKPT_ASSIGN(const LostEnd lost_end, cut_end(disk, store, no_catalog));
  const uint64_t known = catalog->applied_sequence();
  CKPT_TRY(catalog_keeper.go_on_without_disk());
  Status filled = catalog_keeper.catch_up(journal_end());
  if (!filled.ok() && !catalog->health().ok()) filled = heal_catalog();
  CKPT_TRY(filled);
  if (no_catalog) log_catalog_made(store, catalog->applied_sequence());
  CKPT_ASSIGN(const auto lost_names,
              read([&] { return Result(names_of_lost(lost_end, *catalog)); }));
  tell_lost_end(lost_end, lost_names);
  CKPT_ASSIGN(const bool on_record, begin_journal(store));
  CKPT_TRY(mark_damaged(commits_after(store, known)));
  if (!segments) segments = std::make_unique<SegmentReader>(disk, store_id);

  CKPT_TRY(recover_runs(store));
  // Not after a doubtful end of the journal: unlisted extents may be the last copy.
  const bool in_doubt = store.torn_bytes > 0 || salvaged;
  if (!in_doubt && reclaim(std::move(store.listed))) CKPT_TRY(forget_older_journal(disk));
  gc = std::make_unique<Gc>(disk, executor, *segments);
  open_staging();
  io_shape = options.find_io_shape();
  persist = std::make_unique<Persist>(
      disk, executor, *journal,
      Persist::Options{.store = store_id,
                       .first_segment = store.next_segment,
                       .first_sequence = first_extent(store, on_record),
                       .segment_bytes = options.segment_bytes,
                       .bytes_in_flight_max = io_shape.depth * io_shape.bytes,
                       .write_piece_bytes = io_shape.bytes,
                       .reserve_bytes = options.disk_reserve_bytes,
                       .stopwatch = options.stopwatch,
                       .on_dead = [this](const ExtentPlace& extent) {
                         unlisted.push_back({extent.segment, extent.offset, extent.bytes});
                         gc_wanted = true;
                       }});
  open_readers_back();
  start_scrub();
  start_turns();
  log_recovered(store, catalog->runs().size(), journal->bytes());
  return {};
}

// Continues the journal: the record of this startup is next. The store keeps its version until
// a record needs a newer one. False: the disk has no room, and the startup is not recorded
// yet.
Result<bool> Daemon::Impl::begin_journal(const RecoveredStore& store) {
  journal = std::make_unique<JournalWriter>(disk, journal_file, store.end);
  const auto opened_as = [this](uint32_t version, bool clean) {
    fb::StoreOpenedT opened;
    opened.store = ckpt::wire::to_fb(store_id);
    opened.time_ns = wall_clock_ns();
    opened.format_version = version;
    opened.clean = clean;
    return make_record(std::move(opened));
  };
  const fb::RecordT record = opened_as(store.version, store.clean);
  const auto sequence = append_blocking(disk, *journal, {record});
  const bool full = !sequence.ok() && sequence.error().code == ErrorCode::kResourceExhausted;
  if (!sequence.ok() && !full) return sequence.error();
  if (full) {
    spdlog::warn("{}: journal full: this start will be recorded with the next write: {}",
                 kJournalPath, sequence.error().message);
  } else {
    apply(*sequence, record);
  }
  journal->set_store_version(
      {.version = full ? 0 : store.version,
       .least = store.version,
       .make_record = [opened_as](uint32_t version) { return opened_as(version, false); },
       .on_raised = [this](uint64_t raised_at,
                           const fb::RecordT& raised) { apply(raised_at, raised); }});
  return !full;
}

void Daemon::Impl::use(const RecoveredStore& store) {
  store_id = store.id;
  journal_file = store.journal;
  last_sequence = store.end.next_sequence - 1;
}

// Opens the readers of earlier versions, for dedup and deltas.
void Daemon::Impl::open_readers_back() {
  Comparer::Options comparing{.bytes_min = options.same_bytes_min};
  comparing.on_abandoned = [this] {  // its reads may have kept a dead file open
    if (!dead_files.empty()) gc_wanted = true;
  };
  comparer = std::make_unique<Comparer>(restore_context(), std::move(comparing));
  base_reader = std::make_unique<BaseReader>(restore_context(), options.same_bytes_min);
}

void Daemon::Impl::open_staging() {
  Staging::Options of_staging = options.staging;
  of_staging.keeper = keeper;
  of_staging.store = store_id;
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
  for (const RunInfo& removed : catalog->removed_runs()) {
    next_run = std::max(next_run, removed.id + 1);
  }
  for (const RunInfo& run : catalog->runs()) {
    next_run = std::max(next_run, run.id + 1);
    const fb::EpochOpenedT& epoch = store.epochs[run.id];
    // A later epoch than the journal's was salvaged: only its number is known.
    const bool known = epoch.epoch >= run.last_epoch;
    const bool over = store.epochs_over.contains(run.id);
    groups.recovered(run.id, run.last_epoch, known && !over ? epoch.size : 0, epoch.lineage,
                     epoch.elastic ? epoch.members : std::vector<MemberId>(), epoch.goes_on);
    CKPT_ASSIGN(const auto newest, read([&] { return Result(newest_commit(*catalog, run.id)); }));
    if (newest) health_watch.snapshot_durable(run.name, durable_of(*newest));
  }
  return {};
}

// Reclaims preallocated space without commits, extents of unfinished snapshots, and files with only
// deleted commits. True: nothing unlisted is left.
bool Daemon::Impl::reclaim(ListedExtents listed) {
  Status status;
  for (auto segment = listed.begin(); status.ok() && segment != listed.end();) {
    const auto live = catalog->live_extents(segment->first);
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
    unlisted.push_back({stretch.segment, stretch.offset, stretch.bytes});
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
  if (!segments) segments = std::make_unique<SegmentReader>(disk, store_id);
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
  damaged.time_ns = wall_clock_ns();
  return RecoveryCheck{
      .damaged = make_record(std::move(damaged)), .unread = false, .reason = held.error().message};
}

Status Daemon::Impl::mark_damaged(const std::vector<SnapshotKey>& replayed) {
  std::vector<fb::RecordT> records;
  for (const SnapshotKey& key : replayed) {
    CKPT_ASSIGN(RecoveryCheck check, read([&] {
                  return check_commit(*catalog, key, ExtentPart::kWhole, /*log_at_debug=*/false);
                }));
    if (check.damaged) records.push_back(std::move(*check.damaged));
  }
  if (records.empty()) return {};
  auto sequence = append_blocking(disk, *journal, records);
  if (!sequence.ok() && sequence.error().code == ErrorCode::kResourceExhausted) {
    // Restores and verify detect the damage themselves, and the next startup checks again.
    spdlog::warn("damage that was found is not on record: {}", sequence.error().message);
    return {};
  }
  CKPT_TRY(sequence);
  for (const fb::RecordT& one : records) apply((*sequence)++, one);
  return {};
}

}  // namespace ckptd
