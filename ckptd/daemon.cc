#include "ckptd/daemon.h"

#include <spdlog/spdlog.h>

#include "ckptd/daemon_impl.h"
#include "ckptd/observe/health_text.h"
#include "formats/base/printable.h"

namespace ckptd {

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Daemon::~Daemon() { impl_->close(); }

void Daemon::connected(SessionId session, uid_t uid, pid_t pid) {
  impl_->sessions.add(session, uid, pid, impl_->turn.now());
  impl_->session_work[session];
}

void Daemon::receive(SessionId session, fb::MessageT message, ckpt::base::UniqueFd fd) {
  Session* found = impl_->sessions.find(session);
  if (found == nullptr) return;  // sent before its disconnect
  impl_->dispatch(*found, message, std::move(fd));
  impl_->settle();
}

void Daemon::disconnected(SessionId session, const std::string& reason) {
  impl_->disconnected(session, reason);
  impl_->settle();
}

size_t Daemon::poll() {
  size_t ran = impl_->disk.reap() + impl_->executor.reap();
  ran += impl_->history.apply_durable();
  impl_->settle();
  return ran;
}

void Daemon::tick(Time now) {
  impl_->turn.set_now(now);
  impl_->carry_out(impl_->ingest.tick(now));
  impl_->carry_out(impl_->groups.tick(now));
  impl_->end_overdue_holds();
  impl_->history.tick(now);
  impl_->comparer->tick(now);
  impl_->base_reader->tick(now);
  impl_->scrub->tick(now);
  impl_->warm_memory();
  if (impl_->health_watch.is_due(now)) impl_->look_at_health();
  // From the first tick: members cannot rejoin while the store is being recovered.
  if (!impl_->serving_since) impl_->serving_since = now;
  if (!impl_->rejoin_deadline_over && now - *impl_->serving_since >= limits::kReopenDeadline) {
    impl_->end_rejoins();
  }
  impl_->settle();
}

void Daemon::begin_drain() {
  if (impl_->draining) return;
  impl_->draining = true;
  impl_->drain_deadline = impl_->turn.now() + limits::kDrainDeadline;
  // Requests that wait for something that will no longer happen: the client asks the next daemon.
  const Error error = make_error(ErrorCode::kUnavailable, "the daemon is shutting down");
  for (const auto& [run, begins] : std::exchange(impl_->waiting_begins, {})) {
    for (const WaitingBegin& begin : begins) {
      impl_->replies.refuse(begin.session, begin.message.request, error);
    }
  }
  impl_->retry_waiting_restores();
  impl_->settle();
}

bool Daemon::drained() const { return impl_->closed_cleanly; }

void Daemon::set_accept_fault(const std::string& fault) {
  impl_->health_watch.set_accept_fault(fault);
}

Daemon::Answer Daemon::health_answer() {
  impl_->look_at_health();
  const Health& health = impl_->health_watch.health();
  return {.ok = true,
          .text = (health.ok() ? "ok\n" : "degraded\n") +
                  health_lines(health, impl_->turn.wall_clock_ns())};
}

Daemon::Answer Daemon::readiness_answer() {
  impl_->look_at_health();
  const Health& health = impl_->health_watch.health();
  const bool accepts = health.held(Condition::kCannotAccept) == nullptr;
  const bool ready = !impl_->draining && health.can_save() && accepts;
  std::string text = ready ? "ready\n" : "not ready\n";
  if (impl_->draining) text += "draining: ckptd is shutting down and takes nothing new\n";
  text += health_lines(health, impl_->turn.wall_clock_ns());
  text += progress_lines(impl_->health_watch.progress(), impl_->turn.wall_clock_ns(),
                         limits::kRunsInReadyzMax);
  return {.ok = ready, .text = std::move(text)};
}

// Handles work left by callbacks and events, until nothing is left.
void Daemon::Impl::settle() {
  while (snapshot_ended || !arenas_ready.empty() || turn.has_deferred()) {
    turn.run_deferred();
    if (std::exchange(snapshot_ended, false)) {
      retry_waiting_restores();
      retry_waiting_begins();
      std::vector<ckpt::RunId> runs;
      runs.reserve(opening.size());
      for (const auto& [run, open] : opening) runs.push_back(run);
      for (const ckpt::RunId run : runs) try_open_epoch(run);
    }
    const std::set<ArenaId> ready = std::exchange(arenas_ready, {});
    for (auto& [id, session] : sessions.all()) {
      if (!session.arena || !ready.contains(*session.arena)) continue;
      serve_lease_waits(session);
      // A restore may have started before its first slab was faulted in.
      for (auto& [restore_id, restore] : session_work[id].restores) restore.job->pump();
    }
  }
  administration.next();
  collect_garbage();
  answer_gc();
  if (draining) step_drain();
}

// Completes snapshots that every member has sealed. Snapshots that trainers still fill have until
// the deadline; then their slabs are left to the next daemon, and no client sees a failure.
void Daemon::Impl::step_drain() {
  if (history.closing()) return;
  const bool staged = std::any_of(open_snapshots.begin(), open_snapshots.end(),
                                  [&](const auto& open) { return ingest.is_staged(open.first); });
  if (staged || (!open_snapshots.empty() && turn.now() < drain_deadline)) return;
  if (history.journal().in_flight() > 0 || history.applies()) return;  // retried later
  fb::StoreClosedT closed;
  closed.time_ns = turn.wall_clock_ns();
  closed.epochs_told = true;
  for (const auto& [run, epoch] : groups.epochs_in_use()) closed.epochs.emplace_back(run, epoch);
  history.record_last(make_record(std::move(closed)), [this](const Status& status) {
    if (!status.ok()) spdlog::error("the store could not be closed: {}", status.error().message);
    closed_cleanly = true;
  });
}

// Waits for everything in flight; starts nothing new.
void Daemon::Impl::close() {
  draining = true;
  history.apply_at_once();
  for (auto& [id, work] : session_work) {
    for (auto& [restore_id, restore] : work.restores) close_job(std::move(restore.job), {});
    work.restores.clear();
  }
  for (auto& [id, verify] : verifies) close_job(std::move(verify.job), {});
  verifies.clear();
  if (comparer) comparer->abandon_all();
  if (scrub) scrub->close([this] { scrub_closed = true; });
  const auto busy = [this] {
    return !closing_jobs.empty() || (scrub != nullptr && !scrub_closed) ||
           (gc != nullptr && gc->busy()) || (comparer != nullptr && !comparer->idle()) ||
           !history.idle();
  };
  while (busy()) {
    if (disk.in_flight() > 0) {
      disk.wait();
    } else if (executor.outstanding() > 0) {
      executor.wait();
    }
    disk.reap();
    executor.reap();
    turn.run_deferred();
  }
  if (persist) persist->close();
  if (staging) staging->close();
  history.close();
  gate.close();
}

}  // namespace ckptd
