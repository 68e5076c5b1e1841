// RunRegistry: registration of a run's units, by which a session enters its run.
//
// The first registration of a name creates the run; later ones must list the same units, and may
// list units by which the run has grown (snapshots/growth.h). A run
// without commits is replaced if its owner registers other units. That is a change of history: it
// waits for its turn among these, and ends the old run.
//
// Owns the registrations whose records are being written, and the numbers of new runs. Sessions
// that register the same run meanwhile wait for the same records. After a failed write all of them
// get the error, and a later registration tries again. Loop thread only. Nothing to close: work in
// progress is a callback of History, which its owner drains.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckptd/history/history.h"
#include "ckptd/history/run_gate.h"
#include "ckptd/loop/turn.h"
#include "ckptd/runs/units.h"
#include "ckptd/sessions/replies.h"
#include "ckptd/sessions/session.h"

namespace ckptd {

class RunRegistry {
 public:
  struct Needs {
    History& history;
    const Turn& turn;
    Sessions& sessions;
    const Replies& replies;
    RunGate& gate;
    // Requests of trainers for the snapshots of a run: codecs and flags of its units.
    std::function<Status(const ckpt::fb::RegisterUnitsT&)> check_requests;
    // Requests that only a run that already trains may make.
    std::function<Status(const ckpt::fb::RegisterUnitsT&)> check_new_run;
    std::function<void(const std::string& run, const ckpt::fb::RegisterUnitsT&)> note_requests;
    std::function<void(const std::string& run)> forget_requests;
    // The conditions of removing a run.
    std::function<Status(const RunInfo&)> may_remove;
    // Queues the registration among the changes of history: register_replacing() follows.
    std::function<Status(ckpt::SessionId, const ckpt::fb::RegisterUnitsT&)> queue_replacement;
    // The run was replaced: its state outside of the catalog is stale.
    std::function<void(const RunInfo&)> on_run_gone;
  };
  explicit RunRegistry(Needs needs) : needs_(std::move(needs)) {}
  RunRegistry(const RunRegistry&) = delete;
  RunRegistry& operator=(const RunRegistry&) = delete;

  // Recovery: the store has, or had, this run. Its number is not assigned again.
  void recovered(ckpt::RunId run) { next_run_ = std::max(next_run_, run + 1); }

  void register_units(Session& session, const ckpt::fb::RegisterUnitsT& message) {
    take(session, message, /*may_replace=*/false);
  }
  // It is this registration's turn as a change of history: it may replace a run. Precondition: no
  // administration is in progress.
  void register_replacing(Session& session, const ckpt::fb::RegisterUnitsT& message) {
    take(session, message, /*may_replace=*/true);
  }

 private:
  // A run that another one replaces.
  struct Replaced {
    RunInfo run;
    ckpt::fb::RegisterUnitsT registration;  // of the new run
    RunGate::Token administering;
    RunGate::Token replacing;
  };
  // A run whose first registration is being written.
  struct Creating {
    uid_t uid = 0;
    std::vector<ckpt::UnitSpec> units;
    std::vector<std::pair<ckpt::SessionId, uint64_t>> waiting;  // session, request
    RunGate::Token registering;
    std::optional<Replaced> replaced;
  };
  void take(Session& session, const ckpt::fb::RegisterUnitsT& message, bool may_replace);
  Result<std::vector<ckpt::UnitSpec>> check(const ckpt::fb::RegisterUnitsT& message) const;
  // Waits for the first registration of the run.
  Status wait_for(Creating& creating, const Session& session,
                  const ckpt::fb::RegisterUnitsT& message,
                  const std::vector<ckpt::UnitSpec>& units) const;
  void create(const Session& session, const ckpt::fb::RegisterUnitsT& message,
              std::vector<ckpt::UnitSpec> units, const RunInfo* replaced);
  void written(const std::string& name, ckpt::RunId run, const Status& status);
  void refuse(const Session& session, const ckpt::fb::RegisterUnitsT& message,
              const ckpt::Error& error) const;

  const Needs needs_;
  std::map<std::string, Creating> creating_;  // by name
  ckpt::RunId next_run_ = 1;
};

}  // namespace ckptd
