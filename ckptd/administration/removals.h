// Removals: `prune` and `rm` of a commit or a whole run.
//
// A removal takes effect completely or not at all: one batch of the journal. It is planned by the
// catalog as it is, and holds a token of the gate until its records are applied. Space that becomes
// dead is reclaimed later (ckptd/gc). Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "ckptd/administration/change_context.h"
#include "ckptd/holds/holds.h"
#include "ckptd/retention/prune.h"

namespace ckptd {

class Removals {
 public:
  // Questions to, and events for, other parts of the daemon.
  struct Outside {
    // Snapshots of the run that are open.
    std::function<std::vector<ViewPoint>(ckpt::RunId)> points_being_taken;
    std::function<std::vector<HeldVersion>(ckpt::RunId)> versions_held;  // by open snapshots
    std::function<std::vector<HeldView>(ckpt::RunId)> held_views;        // by readers
    // Ends holds of readers in the name of the session, and notifies the readers.
    std::function<void(const Session&, const std::function<bool(const Hold&)>&)> end_holds_by_force;
    std::function<bool(ckpt::RunId)> in_group;  // Groups::in_use()
    // True if members of epochs from before the daemon's start may still rejoin.
    std::function<bool()> may_rejoin;
    // The records are applied, or were refused: work that waits for snapshots may continue.
    std::function<void()> on_ended;
    // The catalog has the deletions.
    std::function<void(const RunInfo&, const std::set<ViewPoint>&)> on_deleted;
    // The run is removed: its state outside of the catalog is stale.
    std::function<void(const RunInfo&)> on_run_gone;
  };
  struct Counters {
    uint64_t commits_deleted = 0;
  };
  Removals(const ChangeContext& context, const Sessions& sessions, RunGate& gate, Outside outside);
  Removals(const Removals&) = delete;
  Removals& operator=(const Removals&) = delete;

  void prune(const Session& session, const RequestedChange& change);
  void remove(const Session& session, const RequestedChange& change);
  // The conditions of removing the whole run: the catalog is readable, and no client uses the run.
  // Pending writes to the run, and their waiters, would be lost.
  Status may_remove(const RunInfo& run) const;

  const Counters& counters() const { return counters_; }

 private:
  struct Deletion {
    RunActivity activity = RunActivity::kDelete;
    RunInfo run;
    PrunePlan plan;
    PlanPage page;
  };
  Status may_delete(const RunInfo& run) const;
  Result<PrunePlan> plan(const Session& session, const PruneArgs& args) const;
  std::vector<ckpt::fb::RecordT> removal_record(const RunInfo& run,
                                                const std::string& reason) const;
  void write(const RequestedChange& change, const Deletion& deletion,
             std::vector<ckpt::fb::RecordT> records);
  void written(const RequestedChange& change, const Deletion& deletion, const Status& status);

  const ChangeContext& context_;
  const Sessions& sessions_;
  RunGate& gate_;
  const Outside outside_;
  std::optional<RunGate::Token> deleting_;
  Counters counters_;
};

}  // namespace ckptd
