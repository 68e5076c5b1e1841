// Wiring of epochs/: what a change of members needs from the rest of the daemon.
#include "ckptd/daemon_impl.h"

namespace ckptd {

Epochs::Needs Daemon::Impl::epochs_needs() {
  return {.history = history,
          .turn = turn,
          .replies = replies,
          .sessions = sessions,
          .staging = [this]() -> Staging& { return *staging; },
          .is_draining = [this] { return draining; },
          .open_snapshots = [this](ckpt::RunId run) { return ingest.open(run); },
          .is_staged = [this](const SnapshotKey& key) { return ingest.is_staged(key); },
          .abort_snapshot = [this](const SnapshotKey& key,
                                   const Error& error) { carry_out(ingest.abort(key, error)); },
          .member_lost =
              [this](ckpt::RunId run, ckpt::Epoch epoch, ckpt::Rank rank, const std::string& why) {
                carry_out(ingest.member_lost(run, epoch, rank, why));
              },
          .is_being_pruned = [this](ckpt::RunId run) { return pruning == run; },
          .is_being_removed = [this](ckpt::RunId run) { return removing == run; },
          .on_write_begins = [this](ckpt::RunId run) { epochs_being_written.insert(run); },
          .on_write_ends = [this](ckpt::RunId run) { epochs_being_written.erase(run); },
          .on_ended =
              [this](ckpt::RunId run, ckpt::Epoch epoch) {
                newest_by_run.erase(run);
                ended_epochs[run] = epoch;
              },
          .on_members_changed = [this] { readers.retry_waiting(); },
          .on_opened = [this](ckpt::RunId run) { ended_epochs.erase(run); },
          .on_rejoins_over =
              [this] {
                for (auto& [id, session] : sessions.all()) end_handback(session);
              }};
}

}  // namespace ckptd
