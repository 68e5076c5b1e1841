// Holds: views that readers protect from removal, from their first restore to their last.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>

#include "ckptd/daemon_impl.h"
#include "ckptd/query/documents.h"

namespace ckptd {

namespace {

Holder holder_of(const Session& session, bool privileged) {
  return {.session = session.id,
          .uid = session.uid,
          .pid = session.pid,
          .client = session.client,
          .privileged = privileged};
}

}  // namespace

// Deletions that are being written to the journal are not in the catalog yet; a hold would be too
// late for them.
Status Daemon::Impl::may_hold(const RunInfo& run) const {
  if (gate.may(RunActivity::kHold, run.id)) return {};
  return make_error(ErrorCode::kUnavailable, "run {}: commits of it are being removed; try again",
                    run.name);
}

Result<Hold> Daemon::Impl::resolve_hold(const Session& session, const fb::HoldCommitT& message) {
  if (draining) return make_error(ErrorCode::kUnavailable, "the daemon is shutting down");
  CKPT_ASSIGN(const RunInfo run,
              history.catalog().run(message.run.empty() ? session.run_name : message.run));
  CKPT_TRY(check_may(session, run, ckpt::Right::kRead));
  CKPT_TRY(may_hold(run));
  fb::OpenRestoreT view;
  view.lineage = message.lineage;
  view.step = message.step;
  view.latest = message.latest;
  view.tag = message.tag;
  view.newest = message.newest;
  CKPT_ASSIGN(const ViewPoint point, resolve_view(run, view));
  return Hold{.holder = holder_of(session, may_use(session, ::geteuid())),
              .run = run.id,
              .view = point,
              .since_ns = turn.wall_clock_ns(),
              .progress_at = turn.now()};
}

void Daemon::Impl::hold_commit(const Session& session, const fb::HoldCommitT& message) {
  const auto hold = history.read([&] { return resolve_hold(session, message); });
  if (!hold.ok()) return replies.refuse(session.id, message.request, hold.error());
  const auto id = holds.take(*hold);
  if (!id.ok()) return replies.refuse(session.id, message.request, id.error());
  fb::CommitHeldT held;
  held.request = message.request;
  held.hold = *id;
  held.lineage = hold->view.lineage;
  held.step = hold->view.step;
  held.lease_ms =
      static_cast<uint32_t>(std::chrono::ceil<std::chrono::milliseconds>(holds.lease()).count());
  replies.send(session.id, std::move(held));
}

// Holds a view until its verify has ended. A verify of whole runs needs no hold, because it skips
// commits that are removed meanwhile. 0: no hold.
Result<HoldId> Daemon::Impl::hold_verified(const Session& session, const VerifyTarget& target) {
  if (!target.point) return HoldId{0};
  CKPT_ASSIGN(const RunInfo run, history.catalog().run(target.runs.front()));
  CKPT_TRY(may_hold(run));
  return holds.take({.holder = holder_of(session, may_use(session, ::geteuid())),
                     .run = run.id,
                     .view = *target.point,
                     .since_ns = turn.wall_clock_ns(),
                     .progress_at = turn.now(),
                     .of_job = true});
}

void Daemon::Impl::renew_hold(const Session& session, const fb::RenewHoldT& message) {
  if (holds.renew(session.id, message.hold, turn.now())) return;
  fb::HoldEndedT ended;
  ended.hold = message.hold;
  ended.reason = "this session has no such hold";
  replies.send(session.id, std::move(ended));
}

void Daemon::Impl::tell_ended(const std::vector<Hold>& ended, const std::string& reason) {
  for (const Hold& hold : ended) {
    spdlog::info("run {} lineage {} step {}: not held any more by {}: {}", run_name(hold.run),
                 hold.view.lineage, hold.view.step, describe(hold.holder), reason);
    if (hold.of_job) continue;  // its session has not requested it
    fb::HoldEndedT message;
    message.hold = hold.id;
    message.reason = reason;
    replies.send(hold.holder.session, std::move(message));
  }
}

void Daemon::Impl::end_overdue_holds() {
  const std::vector<Hold> ended = holds.end_overdue(turn.now());
  counters.holds_overdue += ended.size();
  if (ended.empty()) return;
  tell_ended(ended, fmt::format("its reader made no progress for {} s",
                                std::chrono::floor<std::chrono::seconds>(holds.lease()).count()));
}

// Ends the holds of commits that root removes by force.
void Daemon::Impl::end_holds_by_force(const Session& session,
                                      const std::function<bool(const Hold&)>& which) {
  const std::vector<Hold> ended = holds.end_if(which);
  counters.holds_forced += ended.size();
  tell_ended(ended, fmt::format("user {} removes the commit by force", session.uid));
}

std::vector<HeldView> Daemon::Impl::held_views(ckpt::RunId run) const {
  std::vector<HeldView> views;
  for (const Hold& hold : holds.of_run(run)) {
    views.push_back({hold.view, fmt::format("held by {} since {}", describe(hold.holder),
                                            iso_time(hold.since_ns))});
  }
  return views;
}

}  // namespace ckptd
