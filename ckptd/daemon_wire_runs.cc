// Connections between the registration of runs and the rest of the daemon.
#include "ckptd/daemon_impl.h"

namespace ckptd {

RunRegistry::Needs Daemon::Impl::runs_needs() {
  return {
      .history = history,
      .turn = turn,
      .sessions = sessions,
      .replies = replies,
      .gate = gate,
      .check_requests = [](const fb::RegisterUnitsT& message) -> Status {
        CKPT_TRY(check_unit_codecs(message));
        CKPT_TRY(check_grown_requests(message));
        return UnitFlags::check(message);
      },
      .check_new_run = check_no_auto_codec,
      .note_requests =
          [this](const std::string& run, const fb::RegisterUnitsT& message) {
            snapshots->registered(run, message);
          },
      .forget_requests = [this](const std::string& run) { snapshots->forget_registration(run); },
      .may_remove = [this](const RunInfo& run) { return administration.may_remove(run); },
      .queue_replacement =
          [this](SessionId session, const fb::RegisterUnitsT& message) {
            return administration.queue_registration(session, message);
          },
      .on_run_gone = [this](const RunInfo& run) { run_gone(run); }};
}

}  // namespace ckptd
