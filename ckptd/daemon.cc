#include "ckptd/daemon.h"

#include <spdlog/spdlog.h>

#include "ckptd/daemon_impl.h"
#include "ckptd/observe/health_text.h"

namespace ckptd {

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Daemon::~Daemon() { impl_->close(); }

void Daemon::connected(SessionId session, uid_t uid, pid_t pid) {
  impl_->sessions.add(session, uid, pid, impl_->turn.now());
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
  impl_->snapshots->fail_overdue();
  impl_->epochs.tick(now);
  impl_->readers.tick();
  impl_->history.tick(now);
  impl_->snapshots->tick(now);
  impl_->scrub.tick(now);
  impl_->warm_memory();
  if (impl_->health_watch.is_due(now)) impl_->update_health();
  impl_->epochs.tick_rejoins(now);
  impl_->settle();
}

void Daemon::begin_drain() {
  if (impl_->draining) return;
  impl_->draining = true;
  impl_->drain_deadline = impl_->turn.now() + limits::kDrainDeadline;
  // Requests that wait for something that will no longer happen: the client asks the next daemon.
  impl_->snapshots->begin_drain();
  impl_->readers.retry_waiting();
  impl_->settle();
}

bool Daemon::drained() const { return impl_->closed_cleanly; }

void Daemon::set_accept_fault(const std::string& fault) {
  impl_->health_watch.set_accept_fault(fault);
}

Daemon::Answer Daemon::health_answer() {
  impl_->update_health();
  const Health& health = impl_->health_watch.health();
  return {.ok = true,
          .text = (health.ok() ? "ok\n" : "degraded\n") +
                  health_lines(health, impl_->turn.wall_clock_ns())};
}

Daemon::Answer Daemon::readiness_answer() {
  impl_->update_health();
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

std::string Daemon::metrics_text() {
  impl_->update_health();
  return write_metrics(impl_->metric_views());
}

// Handles work left by callbacks and events, until nothing is left.
void Daemon::Impl::settle() {
  while (snapshot_ended || !arenas_ready.empty() || turn.has_deferred()) {
    turn.run_deferred();
    if (std::exchange(snapshot_ended, false)) {
      readers.retry_waiting();
      snapshots->retry_begins();
      epochs.retry_waiting();
    }
    const std::set<ArenaId> ready = std::exchange(arenas_ready, {});
    for (auto& [id, session] : sessions.all()) {
      if (!session.arena || !ready.contains(*session.arena)) continue;
      snapshots->serve_leases(session);
      readers.slabs_ready(id);
    }
  }
  administration.next();
  space.collect();
  space.answer_askers();
  if (draining) step_drain();
}

// Completes snapshots that every member has sealed. Snapshots that trainers still fill have until
// the deadline; then their slabs are left to the next daemon, and no client sees a failure.
void Daemon::Impl::step_drain() {
  if (history.closing()) return;
  if (snapshots->any_staged()) return;
  if (snapshots->open_count() > 0 && turn.now() < drain_deadline) return;
  if (history.journal().in_flight() > 0 || history.applies()) return;  // retried later
  fb::StoreClosedT closed;
  closed.time_ns = turn.wall_clock_ns();
  closed.epochs_told = true;
  for (const auto& [run, epoch] : epochs.groups().epochs_in_use())
    closed.epochs.emplace_back(run, epoch);
  history.record_last(make_record(std::move(closed)), [this](const Status& status) {
    if (!status.ok()) spdlog::error("the store could not be closed: {}", status.error().message);
    closed_cleanly = true;
  });
}

// Waits for everything in flight; starts nothing new.
void Daemon::Impl::close() {
  draining = true;
  history.apply_at_once();
  readers.close();
  if (snapshots) snapshots->close();
  scrub.close();
  const auto busy = [this] {
    return !readers.idle() || !scrub.closed() || space.busy() ||
           (snapshots != nullptr && !snapshots->idle()) || !history.idle();
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
