#include "trainer/elastic/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <random>

#include "formats/base/console.h"
#include "trainer/checkpoint/plan.h"
#include "trainer/checkpoint/registration.h"
#include "trainer/elastic/supervisor_impl.h"
#include "trainer/report/render.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr int kTickMs = 200;
// A ckptd that has not answered for this long will not drain either.
constexpr uint64_t kHangsAtEndMs = 5'000;
constexpr uint64_t kHangsAtStopMs = 1'000;

// Arenas of all ranks, twice: a dead rank's arena stays until its handed-over snapshots are
// written, while its successor already has one.
uint64_t arena_bytes_for(const RunOptions& options) {
  const RankOptions& rank = options.rank;
  uint64_t ranks = rank.ranks;
  for (const RankJoin& join : options.joins) ranks += join.count;
  const auto units = state_units(rank.config.model);
  // The last survivor of an elastic group saves all by itself.
  const uint64_t sharers = rank.moves_experts() ? 1 : rank.ranks;
  uint64_t share = total_bytes(units) / sharers + units[kTrainerUnit].bytes;
  share += share / 4;
  // An impossible placement is refused elsewhere.
  const Result<ComputePlacement> placement = first_placement(rank);
  if (placement.ok()) {
    const Ownership ownership = make_ownership(rank.expert_state, *placement);
    share = std::max(share, largest_share(units, ownership, rank.partial.dense));
  }
  const bool memory_level = rank.partial.k_snapshot != 0;
  return 2 * ranks * arena_size(share, memory_level).arena_bytes;
}

// Never 0, which means "no job".
uint64_t random_job() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device() | 1;
}

// The model of a resumed run is unknown until ckptd has returned it; most runs need no more than
// this.
constexpr uint64_t kQueryArenaBytes = 256u << 20;
// A start takes this long when a journal is replayed; then it is worth a line.
constexpr uint64_t kReportWaitAfterNs = 2'000'000'000;

}  // namespace

Supervisor::Supervisor(RunOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Supervisor::~Supervisor() {
  // Only a run that did not end normally still has processes.
  impl_->kill_ranks();
  impl_->stop_daemon();
}

Status Supervisor::start_daemon() {
  if (!impl_->options.own_daemon) return {};
  const bool resumes = impl_->options.rank.resume != CKPT_RESUME_START;
  return impl_->start_daemon(resumes ? kQueryArenaBytes : arena_bytes_for(impl_->options));
}
Status Supervisor::settle(const RankOptions& rank) { return impl_->settle(rank); }
int Supervisor::run() { return impl_->run(); }
std::optional<int> Supervisor::stop_signal() const { return impl_->outcome.stop_signal(); }

Supervisor::Impl::Impl(RunOptions run_options) : options(std::move(run_options)) {
  options.rank.job = random_job();
  hold_stop_signals();
  bar.emplace(
      report::ProgressBar::for_descriptor(STDERR_FILENO, options.rank.run, options.rank.steps));
}

Status Supervisor::Impl::start_daemon(uint64_t arena_bytes) {
  DaemonProcess::Options own{.data_dir = options.data_dir,
                             .socket = options.rank.socket,
                             .log_file = options.log_file,
                             .arena_bytes = arena_bytes};
  if (!options.io.empty()) own.more_arguments = {"--io", options.io};
  // A temporary store is not worth the writes that measure the best I/O shape.
  if (!options.keeps_data) {
    own.more_arguments.insert(own.more_arguments.end(), {"--io-shape", "32x4MiB"});
  }
  CKPT_ASSIGN(daemon, DaemonProcess::start(own));
  daemon_arena_bytes = arena_bytes;
  return await_daemon();
}

Status Supervisor::Impl::await_daemon() {
  const uint64_t begin_ns = monotonic_ns();
  bool reported = false;
  while (!daemon->read_log() && !daemon->ready()) {
    const Result<bool> restarted = daemon->restart_if_dead();
    if (!restarted.ok()) {
      daemon.reset();
      return restarted.error();
    }
    if (!reported && monotonic_ns() - begin_ns > kReportWaitAfterNs) {
      say("waiting for ckptd to open " + options.data_dir);
      reported = true;
    }
    pollfd watched[] = {{stop_signals_fd(), POLLIN, 0},
                        {daemon->log_fd(), POLLIN, 0},
                        {daemon->pidfd(), POLLIN, 0}};
    ::poll(watched, std::size(watched), kTickMs);
    take_signal();
    if (outcome.stop_signal()) {
      return make_error(ErrorCode::kAborted, "stopped before ckptd was ready");
    }
  }
  return {};
}

Status Supervisor::Impl::settle(const RankOptions& rank) {
  options.rank.config = rank.config;
  options.rank.placement = rank.placement;
  options.rank.resume_lineage = rank.resume_lineage;
  options.rank.resume_step = rank.resume_step;
  const uint64_t arena_bytes = arena_bytes_for(options);
  if (!daemon || arena_bytes <= daemon_arena_bytes) return {};
  stop_daemon();
  if (outcome.stop_signal()) {
    return make_error(ErrorCode::kAborted, "stopped before ckptd was ready");
  }
  return start_daemon(arena_bytes);
}

int Supervisor::Impl::run() {
  recorder.emplace(options.rank.ranks, options.rank.config.tokens_per_step());
  watchdog.emplace(options.rank.ranks,
                   Watchdog::Patience{.silent_ms = options.heartbeat_timeout_ms});
  UnsavedOptions unsaved = options.unsaved;
  unsaved.socket = options.rank.socket;
  saves.emplace(std::move(unsaved));
  const Status opened = open_files();
  if (!opened.ok()) fail_run(opened.error());
  take_signal();  // a signal that arrived during the look-up of the run
  if (outcome.stop_signal()) stop_at_once("stopped before the first step");
  slots.resize(options.rank.ranks);
  for (uint32_t rank = 0; rank < slots.size() && !outcome.failure(); ++rank) {
    const Status started = start_rank(rank);
    if (!started.ok()) fail_run(started.error());
  }
  if (!outcome.failure()) probe.emplace(options.rank.socket);
  while (ranks_running()) watch_once();
  return finish();
}

Status Supervisor::Impl::open_files() {
  const auto open_file = [](std::string_view flag, RecordFile& file,
                            const std::string& path) -> Status {
    if (path.empty()) return {};
    const Status opened = file.open(path);
    if (opened.ok()) return {};
    return make_error(opened.error().code, "{} {}", flag, opened.error().message);
  };
  CKPT_TRY(open_file("--metrics", metrics, options.metrics_file));
  return open_file("--events", events, options.events_file);
}

bool Supervisor::Impl::ranks_running() const {
  return std::any_of(slots.begin(), slots.end(),
                     [](const Slot& slot) { return slot.process.has_value(); });
}

// One turn of the loop: wait, then events before exits, so that last events are read.
void Supervisor::Impl::watch_once() {
  std::vector<pollfd> watched = {{stop_signals_fd(), POLLIN, 0}};
  if (daemon) {
    watched.push_back({daemon->log_fd(), POLLIN, 0});
    watched.push_back({daemon->pidfd(), POLLIN, 0});
  }
  for (const Slot& slot : slots) {
    if (slot.events.valid()) watched.push_back({slot.events.get(), POLLIN, 0});
    if (slot.process) watched.push_back({slot.process->pidfd(), POLLIN, 0});
  }
  ::poll(watched.data(), watched.size(), kTickMs);
  take_signal();
  if (daemon) daemon_ended();
  if (daemon && probe && options.daemon_timeout_ms != 0) kill_hanging_daemon();
  for (uint32_t rank = 0; rank < slots.size(); ++rank) {
    if (slots[rank].events.valid()) read_events(rank);
    if (!slots[rank].process) continue;
    if (const auto end = slots[rank].process->reap()) rank_ended(rank, *end);
  }
  kill_hanging_ranks();
  watch_saves();
  // This ends ranks that wait for others in an epoch that is no longer needed.
  if (outcome.complete() && others_done()) kill_ranks();
}

// True if every rank that has not saved has no process, waits for an epoch that no other rank will
// join, or hangs in an epoch that the others have left.
bool Supervisor::Impl::others_done() const {
  return std::all_of(slots.begin(), slots.end(), [this](const Slot& slot) {
    return slot.saved || !slot.process || !slot.in_epoch || slot.epoch < continued_epoch;
  });
}

void Supervisor::Impl::daemon_ended() {
  if (daemon->read_log()) recorder->daemon_back(monotonic_ns());
  const Result<bool> restarted = daemon->restart_if_dead();
  if (!restarted.ok()) {
    daemon.reset();
    return fail_run(restarted.error());
  }
  if (!*restarted) return;
  recorder->daemon_died(monotonic_ns());
  say(fmt::format("ckptd is lost at step {}; starting it again", recorder->step()));
}

// Ranks that wait for it ask its successor again.
void Supervisor::Impl::kill_hanging_daemon() {
  if (!daemon->ready()) return probe->forgive();  // it may have a long journal to read
  if (probe->hangs_ms() < options.daemon_timeout_ms) return;
  say(fmt::format("ckptd hangs: no answer on {} for {:.1f} s; killing it", options.rank.socket,
                  static_cast<double>(probe->hangs_ms()) / 1e3));
  probe->forgive();
  daemon->kill();
}

void Supervisor::Impl::take_signal() {
  const std::optional<int> taken = take_stop_signal();
  if (!taken) return;
  if (outcome.stop_signal()) return stop_at_once("stopped at once by a second signal");
  outcome.asked_to_stop(*taken, monotonic_ns());
  if (!ranks_running()) return;
  if (!epoch_seen) return stop_at_once("stopped before the first step");  // no rank has state yet
  say("stopping: the ranks save the step they are at (once more to stop at once)");
  stop_ranks();
}

void Supervisor::Impl::stop_at_once(const std::string& why) {
  outcome.fail_unsaved(make_error(ErrorCode::kAborted, "{}", why));
  kill_ranks();
}

// Ends the run; the first reason counts.
void Supervisor::Impl::fail_run(ckpt::Error error) {
  outcome.fail(std::move(error));
  kill_ranks();
}

void Supervisor::Impl::kill_ranks() {
  for (Slot& slot : slots) {
    if (slot.process && !slot.saved) slot.process->signal(SIGKILL);
  }
}

int Supervisor::Impl::finish() {
  bar->finish();
  // The reason first: ckptd may take a while to stop.
  auto unsaved_steps = report::Printed::kHere;
  if (outcome.failure()) {
    say("moetrain: " + outcome.failure_text(saves->with_cause(outcome.failure()->message)));
    if (say_unsaved()) unsaved_steps = report::Printed::kBefore;
  }
  const uint64_t hangs_ms = outcome.stop_signal() ? kHangsAtStopMs : kHangsAtEndMs;
  const bool hangs = probe && probe->silent_ms() >= hangs_ms;
  probe.reset();  // a draining daemon waits for its connected clients
  if (daemon && hangs) daemon->kill();
  stop_daemon();
  report::Report result = recorder->report();
  add_saves_to(result);
  result.on_loss = {options.rank.elastic ? "continue" : "restart", options.on_loss_reason};
  for (const std::string& mismatch : recorder->mismatches()) {
    say("not reproduced: " + mismatch);
  }
  int exit_code = recorder->mismatches().empty() ? 0 : 1;
  if (!options.report_file.empty()) {
    const Status written = report::write_file(options.report_file, report::to_json(result));
    if (!written.ok()) say("moetrain: " + written.error().message);
    if (!written.ok()) exit_code = 1;
  }
  if (!options.schedule_trace_file.empty()) {
    const Status written = report::write_file(options.schedule_trace_file, schedule_trace.json());
    if (!written.ok()) say("moetrain: " + written.error().message);
    if (!written.ok()) exit_code = 1;
  }
  for (const RecordFile* file : {&metrics, &events}) {
    if (file->lines_lost() == 0) continue;
    say("moetrain: " + file->loss());
    exit_code = 1;
  }
  if (options.print_report) ckpt::base::write_stdout_exactly(report::to_json(result));
  if (outcome.failure()) {
    if (!result.losses.empty()) say_summary(std::move(result), unsaved_steps);
    return outcome.failed_exit_code();
  }
  say_summary(std::move(result), unsaved_steps);
  if (!stopped_short()) return say_unfired_faults() && exit_code == 0 ? 1 : exit_code;
  say_stop_summary();
  return outcome.stopped_exit_code(exit_code);
}

void Supervisor::Impl::say_summary(report::Report result, report::Printed unsaved_steps) {
  say(report::summary_text(result, unsaved_steps));
  if (result.failures.empty() && result.daemon_failures.empty()) return;
  if (unsaved_steps == report::Printed::kBefore) {
    std::erase_if(result.unsaved, [](const report::Unsaved& period) { return !period.saved; });
  }
  say(report::failure_table_text(result));
}

// True if the run stopped before its last step: by a signal to it, or to its last rank.
bool Supervisor::Impl::stopped_short() const { return recorder->step() < options.rank.steps; }

// A requested kill that did not happen is an error: the run does not show its effects.
bool Supervisor::Impl::say_unfired_faults() {
  std::vector<std::string> flags;
  flags.reserve(options.kills.size() + options.leaves.size() + options.phase_kills.size() +
                options.daemon_kills.size());
  for (const RankAt& one : options.kills) {
    flags.push_back(fmt::format("--kill {}@{}", one.rank, one.step));
  }
  for (const RankAt& one : options.leaves) {
    flags.push_back(fmt::format("--leave {}@{}", one.rank, one.step));
  }
  for (const PhaseKill& one : options.phase_kills) {
    flags.push_back(fmt::format("--kill-in {}@{}", one.rank, one.phase));
  }
  for (const uint64_t step : options.daemon_kills) {
    flags.push_back(fmt::format("--kill-daemon {}", step));
  }
  for (const std::string& flag : flags) {
    say(fmt::format("moetrain: {} did not happen: the run was over before it could", flag));
  }
  return !flags.empty();
}

const char* Supervisor::Impl::saved_state_text() const {
  const bool resumed = options.rank.resume != CKPT_RESUME_START;
  const bool saved = resumed || !recorder->durable_steps().empty();
  return !saved                ? "nothing was saved"
         : !options.keeps_data ? "what was saved goes with the temporary folder"
                               : "--resume latest continues from the last checkpoint";
}

void Supervisor::Impl::say_stop_summary() {
  say(fmt::format("stopped {} after step {} of {}; {}", outcome.stopped_by(), recorder->step(),
                  options.rank.steps, saved_state_text()));
  if (!outcome.stop_reason().empty()) say("moetrain: " + outcome.stop_reason());
}

void Supervisor::Impl::record(RecordFile& file, const std::string& line) {
  const std::string changed = file.append(line);
  if (!changed.empty()) say("moetrain: " + changed);
}

void Supervisor::Impl::say(const std::string& line) {
  std::string text = line;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  bar->interrupt(text);
}

}  // namespace moetrain
