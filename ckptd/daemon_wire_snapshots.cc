// Connects snapshots to the other parts of the daemon.
#include "ckptd/daemon_impl.h"
#include "ckptd/reports/durable_step.h"

namespace ckptd {

Snapshots::Needs Daemon::Impl::snapshots_needs() {
  return {
      .turn = turn,
      .history = history,
      .sessions = sessions,
      .replies = replies,
      .staging = *staging,
      .persist = *persist,
      .earlier = readers.context(),
      .options = {.deadline = options.snapshot_deadline,
                  .codec = options.codec,
                  .dedup_bytes_min = options.dedup_bytes_min,
                  .stopwatch = options.stopwatch},
      .member = [this](SessionId session) { return epochs.groups().member(session); },
      .members = [this](ckpt::RunId run,
                        ckpt::Epoch epoch) { return epochs.groups().members(run, epoch); },
      .is_draining = [this] { return draining; },
      .is_deleting = [this](ckpt::RunId run) { return !gate.may(RunActivity::kReference, run); },
      .on_durable =
          [this](const std::string& run, const CommitInfo& commit) {
            health_watch.snapshot_durable(run, durable_of(commit));
          },
      .on_committed =
          [this](const SnapshotKey& key, uint64_t sequence) {
            scrub.committed(key.run, {key.lineage, key.step}, sequence);
          },
      .on_failed =
          [this](const SnapshotKey& key, const Error& error) {
            health_watch.snapshot_failed(history.run_name(key.run), key, error,
                                         turn.wall_clock_ns());
          },
      .on_ended = [this] { snapshot_ended = true; },
      .on_slabs_freed = [this](ArenaId arena) { arenas_ready.insert(arena); },
      .on_reads_abandoned =
          [this] { space.files_closed(); },  // they may have kept a dead file open
  };
}

}  // namespace ckptd
