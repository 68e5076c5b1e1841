// The supervisor's part for checkpoints: its messages to users about saved and unsaved steps, and
// the time limits of waits for ckptd.
#include <poll.h>

#include <iterator>

#include "trainer/elastic/supervisor_impl.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr int kSavePollMs = 100;

}  // namespace

UnsavedWatch::Daemon Supervisor::Impl::daemon_state() const {
  if (!probe) return {};
  return {.silent_ms = probe->silent_ms(),
          .gone = probe->gone(),
          .starting = daemon && !daemon->ready(),
          .bytes_written = probe->bytes_written(),
          .stop_asked = outcome.stop_signal().has_value()};
}

void Supervisor::Impl::watch_saves() {
  const UnsavedWatch::Daemon state = daemon_state();
  const UnsavedWatch::Finding finding = saves->poll(state, monotonic_ns());
  for (const std::string& line : finding.lines) report_line(line);
  if (outcome.failure() || !ranks_running()) return;
  if (finding.verdict == UnsavedWatch::Verdict::kStop && !outcome.complete()) {
    outcome.limit_reached(finding.lines.back());
    stop_ranks();
  }
  const bool ends = finding.verdict == UnsavedWatch::Verdict::kEnd;
  const bool cannot_save = outcome.stop_signal().has_value() &&
                           saves->unsaved().cannot_save(state, outcome.stopped_ns());
  if (!ends && !cannot_save) return;
  outcome.last_save_failed();
  // Another rank has the last checkpoint: ranks that still wait for news have nothing to save.
  if (outcome.complete()) return kill_ranks();
  if (outcome.stop_signal()) {
    return stop_at_once(fmt::format("stopped by {}, without a last checkpoint: {}",
                                    signal_name(*outcome.stop_signal()), unsaved_cause()));
  }
  fail_run(make_error(ErrorCode::kUnavailable, "step {} could not be saved within {} s: {}",
                      recorder->step(), UnsavedWatch::kEndMs / 1'000, unsaved_cause()));
}

std::string Supervisor::Impl::unsaved_cause() const {
  const std::string cause = saves->unsaved().cause();
  return cause.empty() ? fmt::format("ckptd at {} does not answer", options.rank.socket) : cause;
}

// On stderr, and among the events.
void Supervisor::Impl::report_line(const std::string& line) {
  say(line);
  record(events, to_line({.header = {.time_ns = monotonic_ns(), .step = recorder->step()},
                          .body = NoticeEvent{line}}));
}

void Supervisor::Impl::stop_ranks() {
  for (Slot& slot : slots) {
    if (slot.process && slot.joined) slot.process->signal(stop_rank_signal());
  }
}

// Lets our own ckptd drain, but no longer than its bound. Another stop signal ends the wait.
void Supervisor::Impl::stop_daemon() {
  if (!daemon) return;
  daemon->ask_to_stop();
  const uint64_t wait_ms = outcome.drain_ms();
  const uint64_t begin_ns = monotonic_ns();
  while (!daemon->ended() && ms_between(begin_ns, monotonic_ns()) < static_cast<double>(wait_ms)) {
    pollfd watched[] = {{stop_signals_fd(), POLLIN, 0},
                        {daemon->log_fd(), POLLIN, 0},
                        {daemon->pidfd(), POLLIN, 0}};
    ::poll(watched, std::size(watched), kSavePollMs);
    (void)daemon->read_log();
    if (const std::optional<int> taken = take_stop_signal()) {
      outcome.asked_to_stop(*taken, monotonic_ns());
      break;
    }
  }
  daemon->kill_if_running();
  daemon.reset();
}

// After a failure: prints the unsaved steps. True if it printed a line about them.
bool Supervisor::Impl::say_unsaved() {
  if (!epoch_seen) return false;
  const std::string unsaved = saves->unsaved().unsaved_text();
  if (!unsaved.empty()) {
    const std::string comes = pending();
    const bool nothing_yet = !comes.empty() && saves->unsaved().saved_step() == 0;
    say(fmt::format("{}; {}{}", unsaved, comes,
                    nothing_yet ? "nothing is durable yet" : saved_state_text()));
    return true;
  }
  if (outcome.failure()->code == ErrorCode::kResourceExhausted) say(saved_state_text());
  return false;
}

// Snapshots that ckptd will still complete. The run's own ckptd ends with the run.
std::string Supervisor::Impl::pending() const {
  const bool answers = probe && probe->silent_ms() < UnsavedWatch::kSilentMs;
  const std::string snapshots = saves->pending_text();
  if (snapshots.empty() || !answers || daemon) return "";
  return fmt::format(
      "ckptd at {} still has {} on the way to its disk, which may become durable yet "
      "(ckptctl log {}); ",
      options.rank.socket, snapshots, options.rank.run);
}

void Supervisor::Impl::add_saves_to(report::Report& result) const {
  result.saved_step = saves->unsaved().saved_step();
  const std::string ended = outcome.failure() ? "the run ended: " + outcome.failure()->message : "";
  result.unsaved = saves->unsaved().periods(monotonic_ns(), ended);
}

}  // namespace moetrain
