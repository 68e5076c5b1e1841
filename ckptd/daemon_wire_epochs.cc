// Wiring of epochs/: what a change of members needs from the rest of the daemon.
#include "ckptd/daemon_impl.h"

namespace ckptd {

Epochs::Needs Daemon::Impl::epochs_needs() {
  return {.history = history,
          .turn = turn,
          .replies = replies,
          .sessions = sessions,
          .gate = gate,
          .staging = [this]() -> Staging& { return *staging; },
          .is_draining = [this] { return draining; },
          .has_open_snapshots = [this](ckpt::RunId run) { return !snapshots->open(run).empty(); },
          .abort_unstaged = [this](ckpt::RunId run,
                                   const Error& error) { snapshots->abort_unstaged(run, error); },
          .member_gone =
              [this](ckpt::RunId run, ckpt::Epoch epoch, ckpt::Rank rank, const std::string& why) {
                snapshots->member_gone(run, epoch, rank, why);
              },
          .on_may_open = [this] { snapshot_ended = true; },
          .on_ended = [this](ckpt::RunId run,
                             ckpt::Epoch epoch) { snapshots->epoch_ended(run, epoch); },
          .on_members_changed = [this] { readers.retry_waiting(); },
          .on_opened = [this](ckpt::RunId run) { snapshots->epoch_opened(run); },
          .on_rejoins_over =
              [this] {
                for (auto& [id, session] : sessions.all()) snapshots->end_handback(session);
              }};
}

}  // namespace ckptd
