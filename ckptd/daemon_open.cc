// Startup: recovers the store (recovery/), and builds the stages from the result.
#include <spdlog/spdlog.h>

#include "ckptd/daemon_impl.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/reports/durable_step.h"
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
      readers(readers_needs()),
      registry(runs_needs()),
      administration(administration_needs()),
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

void log_recovered(const History& history, bool clean) {
  const std::string id = ckpt::base::to_hex(history.store_id());
  const size_t runs = history.catalog().runs().size();
  const uint64_t bytes = history.journal().bytes();
  log_event(spdlog::level::info, "recovered",
            {{"store", id}, {"runs", runs}, {"journal_bytes", bytes}, {"clean", clean}},
            "store {}: {}, journal of {} bytes, last closed {}", id,
            ckpt::base::counted(runs, "run"), bytes, clean ? "cleanly" : "by a crash");
}

}  // namespace

// Caches outside of the catalog follow the record that is about to be applied.
void Daemon::Impl::on_record(const fb::RecordT& record) {
  space.on_record(record);
  // Recovery applies records before there are snapshots.
  if (const auto run = run_of_loss(record); run && snapshots) snapshots->versions_lost(*run);
}

Status Daemon::Impl::open() {
  const RecoveryNeeds needs{
      .disk = disk, .history = history, .turn = turn, .random_seed = options.random_seed};
  CKPT_ASSIGN(Recovered recovered, recover(needs));
  segments = std::move(recovered.segments);
  take_recovered(recovered);
  space.open(disk, *segments);
  open_staging();
  readers.open_sources();
  io_shape = options.find_io_shape();
  open_persist(recovered);
  snapshots = std::make_unique<Snapshots>(snapshots_needs());
  scrub.open(readers.context());
  history.start_turns();
  log_recovered(history, recovered.clean);
  return {};
}

// Members of the last epochs may rejoin. Metrics of the runs continue.
void Daemon::Impl::take_recovered(const Recovered& recovered) {
  registry.recovered(recovered.next_run - 1);
  for (const RecoveredRun& run : recovered.runs) {
    epochs.groups_for_recovery().recovered(run.id, run.epoch, run.rejoining, run.lineage,
                                           run.members, run.survivors_continued);
    if (run.newest) health_watch.snapshot_durable(run.name, durable_of(*run.newest));
  }
  marked_commits.use(recovered.damaged);
  health_watch.set_lost_end(recovered.lost_end, kLostEndRemedy);
  for (const SpaceRange& range : recovered.unlisted) space.add_unlisted(range);
}

void Daemon::Impl::open_persist(const Recovered& recovered) {
  persist = std::make_unique<Persist>(
      disk, executor, history.journal(),
      Persist::Options{.store = history.store_id(),
                       .first_segment = recovered.next_segment,
                       .first_sequence = recovered.first_extent,
                       .segment_bytes = options.segment_bytes,
                       .bytes_in_flight_max = io_shape.depth * io_shape.bytes,
                       .write_piece_bytes = io_shape.bytes,
                       .reserve_bytes = options.disk_reserve_bytes,
                       .stopwatch = options.stopwatch,
                       .on_dead = [this](const ExtentPlace& extent) {
                         space.add_unlisted({extent.segment, extent.offset, extent.bytes});
                         space.want_round();
                       }});
}

void Daemon::Impl::open_staging() {
  Staging::Options of_staging = options.staging;
  of_staging.keeper = keeper;
  of_staging.store = history.store_id();
  staging = std::make_unique<Staging>(disk, executor, of_staging);
  staging->set_on_slabs_ready([this](ArenaId arena) { arenas_ready.insert(arena); });
  restore_kept_memory();
}

// Before clients are served, because all members of an epoch must see the same versions. Of the
// kept slabs only those of valid commits are useful.
void Daemon::Impl::restore_kept_memory() {
  if (keeper == nullptr) return;
  const Staging::RestoredMemory taken = staging->restore_kept([this](const SnapshotKey& key) {
    const auto found = history.commit_at(key);
    if (!found.ok()) return true;  // keep if in doubt: some versions are only in memory
    const auto& commit = *found;
    return commit && commit->snapshot == key && !commit->deleted && !commit->damaged;
  });
  counters.slabs_taken_back = taken.slabs;
  counters.slabs_not_taken_back = taken.refused;
  if (taken.slabs + taken.refused == 0) return;
  spdlog::info("{} slabs with {} bytes were taken back in {} arenas; {} were not", taken.slabs,
               taken.bytes, taken.arenas, taken.refused);
}

}  // namespace ckptd
