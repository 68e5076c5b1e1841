#include "ckptd/daemon.h"

#include <spdlog/spdlog.h>

#include "ckptd/daemon_impl.h"
#include "ckptd/observe/health_text.h"
#include "formats/base/printable.h"

namespace ckptd {

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Daemon::~Daemon() { impl_->close(); }

void Daemon::connected(SessionId session, uid_t uid, pid_t pid) {
  Session& added = impl_->sessions[session];
  added.id = session;
  added.uid = uid;
  added.pid = pid;
  added.connected_at = impl_->now;
}

void Daemon::receive(SessionId session, fb::MessageT message, ckpt::base::UniqueFd fd) {
  const auto found = impl_->sessions.find(session);
  if (found == impl_->sessions.end()) return;  // sent before its disconnect
  impl_->dispatch(found->second, message, std::move(fd));
  impl_->settle();
}

void Daemon::disconnected(SessionId session, const std::string& reason) {
  impl_->disconnected(session, reason);
  impl_->settle();
}

size_t Daemon::poll() {
  size_t ran = impl_->disk.reap() + impl_->executor.reap();
  ran += impl_->apply_durable();
  impl_->settle();
  return ran;
}

void Daemon::tick(Time now) {
  impl_->now = now;
  impl_->carry_out(impl_->ingest.tick(now));
  impl_->carry_out(impl_->groups.tick(now));
  impl_->end_overdue_holds();
  impl_->catalog_keeper.tick(now, impl_->journal_end());
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
  impl_->drain_deadline = impl_->now + limits::kDrainDeadline;
  // Requests that wait for something that will no longer happen: the client asks the next daemon.
  const Error error = make_error(ErrorCode::kUnavailable, "the daemon is shutting down");
  for (const auto& [run, begins] : std::exchange(impl_->waiting_begins, {})) {
    for (const WaitingBegin& begin : begins) {
      impl_->refuse(begin.session, begin.message.request, error);
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
  return {
      .ok = true,
      .text = (health.ok() ? "ok\n" : "degraded\n") + health_lines(health, impl_->wall_clock_ns())};
}

Daemon::Answer Daemon::readiness_answer() {
  impl_->look_at_health();
  const Health& health = impl_->health_watch.health();
  const bool accepts = health.held(Condition::kCannotAccept) == nullptr;
  const bool ready = !impl_->draining && health.can_save() && accepts;
  std::string text = ready ? "ready\n" : "not ready\n";
  if (impl_->draining) text += "draining: ckptd is shutting down and takes nothing new\n";
  text += health_lines(health, impl_->wall_clock_ns());
  text += progress_lines(impl_->health_watch.progress(), impl_->wall_clock_ns(),
                         limits::kRunsInReadyzMax);
  return {.ok = ready, .text = std::move(text)};
}

// Handles work left by callbacks and events, until nothing is left.
void Daemon::Impl::settle() {
  while (snapshot_ended || !arenas_ready.empty() || !deferred.empty()) {
    run_deferred();
    if (std::exchange(snapshot_ended, false)) {
      retry_waiting_restores();
      retry_waiting_begins();
      std::vector<ckpt::RunId> runs;
      runs.reserve(opening.size());
      for (const auto& [run, open] : opening) runs.push_back(run);
      for (const ckpt::RunId run : runs) try_open_epoch(run);
    }
    const std::set<ArenaId> ready = std::exchange(arenas_ready, {});
    for (auto& [id, session] : sessions) {
      if (!session.arena || !ready.contains(*session.arena)) continue;
      serve_lease_waits(session);
      // A restore may have started before its first slab was faulted in.
      for (auto& [restore_id, restore] : session.restores) restore.job->pump();
    }
  }
  next_administration();
  collect_garbage();
  answer_gc();
  if (draining) step_drain();
}

// Completes snapshots that every member has sealed. Snapshots that trainers still fill have until
// the deadline; then their slabs are left to the next daemon, and no client sees a failure.
void Daemon::Impl::step_drain() {
  if (closing_record_sent) return;
  const bool staged = std::any_of(open_snapshots.begin(), open_snapshots.end(),
                                  [&](const auto& open) { return ingest.is_staged(open.first); });
  if (staged || (!open_snapshots.empty() && now < drain_deadline)) return;
  if (journal->in_flight() > 0 || applies()) return;  // retried later
  fb::StoreClosedT closed;
  closed.time_ns = wall_clock_ns();
  closed.epochs_told = true;
  for (const auto& [run, epoch] : groups.epochs_in_use()) closed.epochs.emplace_back(run, epoch);
  std::vector<fb::RecordT> records;
  records.push_back(make_record(std::move(closed)));
  record(std::move(records), [this](const Status& status) {
    if (!status.ok()) spdlog::error("the store could not be closed: {}", status.error().message);
    closed_cleanly = true;
  });
  closing_record_sent = true;
}

void Daemon::Impl::refuse(SessionId session, uint64_t request, const Error& error) {
  fb::ErrorReplyT reply;
  reply.request = request;
  reply.code = static_cast<int>(error.code);
  reply.message = ckpt::base::shortened(error.message, limits::kMessageBytesMax);
  send(session, std::move(reply));
}

void Daemon::Impl::done(SessionId session, uint64_t request) {
  fb::DoneT reply;
  reply.request = request;
  send(session, std::move(reply));
}

void Daemon::Impl::run_deferred() {
  for (const auto& work : std::exchange(deferred, {})) work();
}

// Waits for everything in flight; starts nothing new.
void Daemon::Impl::close() {
  draining = true;
  durable.at_once = true;
  apply_durable();
  for (auto& [id, session] : sessions) {
    for (auto& [restore_id, restore] : session.restores) close_job(std::move(restore.job), {});
    session.restores.clear();
  }
  for (auto& [id, verify] : verifies) close_job(std::move(verify.job), {});
  verifies.clear();
  if (comparer) comparer->abandon_all();
  if (scrub) scrub->close([this] { scrub_closed = true; });
  const auto busy = [this] {
    return !closing_jobs.empty() || (scrub != nullptr && !scrub_closed) ||
           (gc != nullptr && gc->busy()) || (comparer != nullptr && !comparer->idle()) ||
           (journal != nullptr && journal->in_flight() > 0) || durable.turn_asked;
  };
  while (busy()) {
    if (disk.in_flight() > 0) {
      disk.wait();
    } else if (executor.outstanding() > 0) {
      executor.wait();
    }
    disk.reap();
    executor.reap();
    run_deferred();
  }
  if (persist) persist->close();
  if (staging) staging->close();
  if (journal) disk.close(journal_file);
}

}  // namespace ckptd
