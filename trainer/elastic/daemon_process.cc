#include "trainer/elastic/daemon_process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "trainer/elastic/stop_signals.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Asks our own ckptd to drain. It ignores the signals that people and batch systems send to all
// processes of a job, because the ranks still save then.
constexpr int kDrain = SIGPWR;
constexpr int kKilledWithinMs = 10'000;

// "ready" alone, or as the message of a log line with a time stamp before it.
bool says_ready(const std::string& line) { return line == "ready" || line.ends_with(" ready"); }

}  // namespace

Result<Process> DaemonProcess::spawn(const Options& options, const Pipe& log) {
  Process::Options process;
  process.arguments = {sibling_program("ckptd"),
                       "--data",
                       options.data_dir,
                       "--listen",
                       "unix:" + options.socket,
                       "--arena",
                       std::to_string(options.arena_bytes),
                       "--warm-pool",
                       "0"};  // no other user connects
  process.arguments.insert(process.arguments.end(), options.more_arguments.begin(),
                           options.more_arguments.end());
  process.descriptors = {{log.write.get(), STDERR_FILENO}, {log.write.get(), STDOUT_FILENO}};
  process.death_signal = kDrain;
  process.ignored_signals.assign(kStopSignals.begin(), kStopSignals.end());
  return Process::start(process);
}

Result<DaemonProcess> DaemonProcess::start(const Options& options) {
  CKPT_ASSIGN(Pipe log, make_pipe());
  // The supervisor's end never blocks; the daemon's may, until the supervisor has read.
  ::fcntl(log.read.get(), F_SETFL, O_NONBLOCK);
  CKPT_ASSIGN(Process process, spawn(options, log));
  return DaemonProcess(options, std::move(process), std::move(log));
}

bool DaemonProcess::read_log() {
  bool became_ready = false;
  std::ofstream file(options_.log_file, std::ios::app | std::ios::binary);
  char bytes[16384];
  for (;;) {
    const ssize_t n = ::read(log_.read.get(), bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    file.write(bytes, n);
    partial_line_.append(bytes, static_cast<size_t>(n));
    for (size_t end; (end = partial_line_.find('\n')) != std::string::npos;) {
      std::string line = partial_line_.substr(0, end);
      partial_line_.erase(0, end + 1);
      if (says_ready(line)) became_ready = true;
      lines_.push_back(std::move(line));
      if (lines_.size() > kLinesKept) lines_.pop_front();
    }
  }
  if (became_ready) {
    ready_ = was_ready_ = true;
    starts_without_ready_ = 0;
    exits_without_ready_ = 0;
  }
  return became_ready;
}

std::string DaemonProcess::last_words() const {
  return lines_.empty() ? "it said nothing" : lines_.back();
}

Result<bool> DaemonProcess::restart_if_dead() {
  const auto end = process_.reap();
  if (!end) return false;
  (void)read_log();
  if (!ready_ && end->signal == 0) ++exits_without_ready_;
  const int exits_max = was_ready_ ? kExitsWithoutReadyMax : kFirstExitsMax;
  if (starts_without_ready_ >= kStartsWithoutReadyMax || exits_without_ready_ >= exits_max) {
    return make_error(ErrorCode::kUnavailable, "ckptd does not start ({}): {}", end->text(),
                      last_words());
  }
  ++starts_without_ready_;
  ready_ = false;
  CKPT_ASSIGN(process_, spawn(options_, log_));
  return true;
}

void DaemonProcess::ask_to_stop() const { process_.signal(kDrain); }

bool DaemonProcess::ended() {
  if (!ended_) ended_ = process_.reap().has_value();
  return ended_;
}

void DaemonProcess::kill_if_running() {
  if (!ended()) {
    process_.signal(SIGKILL);
    process_.wait(kKilledWithinMs);
  }
  (void)read_log();
}

}  // namespace moetrain
