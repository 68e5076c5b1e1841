#include "trainer/elastic/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "trainer/checkpoint/plan.h"
#include "trainer/checkpoint/registration.h"
#include "trainer/elastic/supervisor_impl.h"
#include "trainer/report/render.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr int kTickMs = 200;
constexpr int kDaemonStopMs = 40'000;  // a little more than ckptd allows itself to drain

// Arenas of all ranks, and as much again: a rank that died leaves its arena behind until what it
// had handed over is written, while its successor already has one.
uint64_t daemon_arena_bytes(const RankOptions& rank) {
  const auto units = state_units(rank.config.model);
  const uint64_t share = total_bytes(units) / rank.ranks + units[kTrainerUnit].bytes;
  return 2 * rank.ranks * arena_size(share + share / 4).arena_bytes;
}

// SIGINT and SIGTERM as a readable descriptor.
ckpt::base::UniqueFd watch_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return ckpt::base::UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

}  // namespace

Supervisor::Supervisor(RunOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Supervisor::~Supervisor() {
  impl_->kill_ranks();
  if (impl_->daemon) impl_->daemon->stop(kDaemonStopMs);
}

Status Supervisor::start_daemon() { return impl_->start_daemon(); }
Status Supervisor::settle(const TrainConfig& config) { return impl_->settle(config); }
int Supervisor::run() { return impl_->run(); }

Status Supervisor::Impl::start_daemon() {
  if (!options.own_daemon) return {};
  DaemonProcess::Options own{.data_dir = options.data_dir,
                             .socket = options.rank.socket,
                             .log_file = options.log_file,
                             .arena_bytes = daemon_arena_bytes(options.rank)};
  if (!options.io.empty()) own.more_arguments = {"--io", options.io};
  CKPT_ASSIGN(daemon, DaemonProcess::start(own));
  return {};
}

Status Supervisor::Impl::settle(const TrainConfig& config) {
  const uint64_t arena_before = daemon_arena_bytes(options.rank);
  options.rank.config = config;
  if (!daemon || daemon_arena_bytes(options.rank) <= arena_before) return {};
  // The model that is resumed is larger than ckptd was started for.
  daemon->stop(kDaemonStopMs);
  daemon.reset();
  return start_daemon();
}

int Supervisor::Impl::run() {
  signals = watch_signals();
  recorder.emplace(options.rank.ranks, options.rank.config.tokens_per_step());
  bar.emplace(
      report::ProgressBar::for_descriptor(STDERR_FILENO, options.rank.run, options.rank.steps));
  const Status opened = open_files();
  if (!opened.ok()) give_up(opened.error());
  slots.resize(options.rank.ranks);
  for (uint32_t rank = 0; rank < slots.size() && !failure; ++rank) {
    const Status started = start_rank(rank);
    if (!started.ok()) give_up(started.error());
  }
  while (ranks_running()) watch_once();
  return finish();
}

Status Supervisor::Impl::open_files() {
  for (auto& [path, file] : {std::pair<std::string&, std::ofstream&>(options.metrics_file, metrics),
                             {options.events_file, events}}) {
    if (path.empty()) continue;
    file.open(path, std::ios::trunc);
    if (!file) return make_error(ErrorCode::kIo, "{}: cannot be written", path);
  }
  return {};
}

bool Supervisor::Impl::ranks_running() const {
  return std::any_of(slots.begin(), slots.end(),
                     [](const Slot& slot) { return slot.process.has_value(); });
}

// One turn of the loop: wait, then events before ends, so that last words are heard.
void Supervisor::Impl::watch_once() {
  std::vector<pollfd> watched = {{signals.get(), POLLIN, 0}};
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
  for (uint32_t rank = 0; rank < slots.size(); ++rank) {
    if (slots[rank].events.valid()) read_events(rank);
    if (!slots[rank].process) continue;
    if (const auto end = slots[rank].process->reap()) rank_ended(rank, *end);
  }
  kill_hanging_ranks();
  // A rank that waits for the others of an epoch that is not needed any more.
  if (complete) {
    const bool others_done = std::all_of(slots.begin(), slots.end(), [](const Slot& slot) {
      return slot.saved || !slot.process || slot.left_group;
    });
    const bool somebody_waits = std::any_of(
        slots.begin(), slots.end(), [](const Slot& slot) { return slot.process && !slot.saved; });
    if (others_done && somebody_waits) kill_ranks();
  }
}

void Supervisor::Impl::daemon_ended() {
  if (daemon->read_log()) recorder->daemon_back(monotonic_ns());
  const Result<bool> restarted = daemon->restart_if_dead();
  if (!restarted.ok()) {
    daemon.reset();
    return give_up(restarted.error());
  }
  if (!*restarted) return;
  recorder->daemon_died(monotonic_ns());
  say(fmt::format("ckptd is lost at step {}; starting it again", recorder->step()));
}

void Supervisor::Impl::take_signal() {
  signalfd_siginfo info;
  if (::read(signals.get(), &info, sizeof info) != sizeof info) return;
  if (stop_signal) {
    give_up(make_error(ErrorCode::kAborted, "stopped at once by a second signal"));
    return;
  }
  stop_signal = static_cast<int>(info.ssi_signo);
  say("stopping: the ranks save the step they are at (once more to stop at once)");
  for (Slot& slot : slots) {
    if (slot.process) slot.process->signal(SIGTERM);
  }
}

// Ends the run; the first reason counts.
void Supervisor::Impl::give_up(ckpt::Error error) {
  if (!failure) failure = std::move(error);
  kill_ranks();
}

void Supervisor::Impl::kill_ranks() {
  for (Slot& slot : slots) {
    if (slot.process && !slot.saved) slot.process->signal(SIGKILL);
  }
}

int Supervisor::Impl::finish() {
  bar->finish();
  if (daemon) daemon->stop(kDaemonStopMs);
  const report::Report result = recorder->report();
  for (const std::string& mismatch : recorder->mismatches()) {
    say("not reproduced: " + mismatch);
  }
  int exit_code = recorder->mismatches().empty() ? 0 : 1;
  if (!options.report_file.empty()) {
    const Status written = report::write_file(options.report_file, report::to_json(result));
    if (!written.ok()) say(written.error().message);
    if (!written.ok()) exit_code = 1;
  }
  if (options.print_report) std::fputs(report::to_json(result).c_str(), stdout);
  if (failure) {
    say("error: " + failure->message);
    return ckpt::exit_code_for(failure->code);
  }
  say(report::summary_text(result));
  if (!result.failures.empty()) say(report::failure_table_text(result));
  if (stop_signal) {
    say(fmt::format("stopped by signal {} after step {} of {}; --resume latest goes on from here",
                    *stop_signal, recorder->step(), options.rank.steps));
  }
  return exit_code;
}

void Supervisor::Impl::say(const std::string& line) {
  std::string text = line;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  bar->interrupt(text);
}

}  // namespace moetrain
