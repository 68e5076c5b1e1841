// Connections between changes of history and the rest of the daemon.
#include "ckptd/daemon_impl.h"

namespace ckptd {

Administration::Needs Daemon::Impl::administration_needs() {
  return {.history = history,
          .turn = turn,
          .sessions = sessions,
          .replies = replies,
          .gate = gate,
          .query_context = [this](const Session& session) { return query_context(session); },
          .register_replacing =
              [this](Session& session, const fb::RegisterUnitsT& message) {
                registry.register_replacing(session, message);
              },
          .removals =
              {.points_being_taken =
                   [this](ckpt::RunId run) {
                     std::vector<ViewPoint> points;
                     for (const SnapshotKey& open : snapshots->open(run)) {
                       points.push_back({open.lineage, open.step});
                     }
                     return points;
                   },
               .versions_held = [this](ckpt::RunId run) { return snapshots->versions_held(run); },
               .held_views = [this](ckpt::RunId run) { return readers.held_views(run); },
               .end_holds_by_force =
                   [this](const Session& session, const std::function<bool(const Hold&)>& which) {
                     readers.end_holds_by_force(session, which);
                   },
               .in_group = [this](ckpt::RunId run) { return epochs.groups().in_use(run); },
               .may_rejoin = [this] { return !epochs.rejoins_over(); },
               .on_ended = [this] { snapshot_ended = true; },  // an epoch may be waiting for this
               .on_deleted =
                   [this](const RunInfo& run, const std::set<ViewPoint>& commits) {
                     scrub.deleted(run, commits);
                   },
               .on_run_gone = [this](const RunInfo& run) { run_gone(run); }}};
}

// Drops the state of a removed run outside of the catalog.
void Daemon::Impl::run_gone(const RunInfo& run) {
  staging->drop_cached(run.id);
  staging->unpin_memory(run.id);
  snapshots->versions_lost(run.id);
  persist->forget_shortage(run.id);
  health_watch.run_removed(run.name);
  snapshots->forget_registration(run.name);
}

}  // namespace ckptd
