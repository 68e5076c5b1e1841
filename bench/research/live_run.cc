#include "bench/research/live_run.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;
using moetrain::monotonic_ns;
using moetrain::RankEvent;

namespace {

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr int kLiveRunStopMs = 45'000;  // what the supervisor gives its ckptd
constexpr int kSignalExit = 128;

}  // namespace

Result<std::unique_ptr<LiveRun>> LiveRun::start(const StepWorkload& workload,
                                                const std::vector<std::string>& flags,
                                                uint64_t seconds_max) {
  CKPT_ASSIGN(ScratchDirectory folder, ScratchDirectory::make(workload.directory));
  std::unique_ptr<LiveRun> run(new LiveRun(std::move(folder), seconds_max));
  const std::string fifo = run->folder_.path() + "/events";
  // The reader opens first, so that the run can open the other end without waiting.
  if (::mkfifo(fifo.c_str(), 0600) == 0) {
    run->fifo_.reset(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }
  if (!run->fifo_.valid()) return make_error(ErrorCode::kIo, "{}: {}", fifo, std::strerror(errno));
  CKPT_ASSIGN(run->process_, start_run(run_command(workload, fifo, flags), run->folder_.path()));
  run->deadline_ns_ = monotonic_ns() + seconds_max * 1'000 * kNsPerMs;
  return run;
}

LiveRun::~LiveRun() {
  if (!process_ || end_) return;
  process_->signal(SIGKILL);
  (void)process_->wait(kLiveRunStopMs);
}

bool LiveRun::read_until(uint64_t end_ns) {
  const uint64_t now_ns = monotonic_ns();
  const uint64_t left_ns = end_ns - std::min(now_ns, end_ns);
  const timespec patience{static_cast<time_t>(left_ns / (1'000 * kNsPerMs)),
                          static_cast<long>(left_ns % (1'000 * kNsPerMs))};
  pollfd watched[] = {{fifo_.get(), POLLIN, 0}, {end_ ? -1 : process_->pidfd(), POLLIN, 0}};
  ::ppoll(watched, std::size(watched), &patience, nullptr);
  // Reap first, then read: no output can follow the last read.
  if (!end_) end_ = process_->reap();
  bool read_some = false;
  char bytes[65536];
  for (;;) {
    const ssize_t n = ::read(fifo_.get(), bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    reader_.append({bytes, static_cast<size_t>(n)});
    read_some = true;
  }
  std::vector<RankEvent> fresh = reader_.take();
  std::move(fresh.begin(), fresh.end(), std::back_inserter(events_));
  return read_some || !end_;
}

ckpt::Error LiveRun::too_late(const std::string& waited_for) const {
  if (end_) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "moetrain run ended with {}; waited for {}: {}", end_->text(), waited_for,
                      run_log(folder_.path()));
  }
  return make_error(ErrorCode::kDeadlineExceeded,
                    "moetrain run took more than {} s; waited for {}: {}", seconds_max_, waited_for,
                    run_log(folder_.path()));
}

Result<uint64_t> LiveRun::await_step(uint64_t step) {
  size_t next = 0;
  for (bool continues = true; continues && monotonic_ns() < deadline_ns_;) {
    for (; next < events_.size(); ++next) {
      const RankEvent& event = events_[next];
      const bool is_step = event.as<moetrain::StepEvent>() != nullptr;
      if (is_step && event.header.step >= step) return event.header.time_ns;
    }
    continues = read_until(deadline_ns_);
  }
  return too_late(fmt::format("step {}", step));
}

Result<uint64_t> LiveRun::signal_ranks(const std::vector<uint32_t>& ranks, int number) const {
  std::vector<pid_t> pids;
  pids.reserve(ranks.size());
  for (const uint32_t rank : ranks) {
    int64_t pid = 0;  // of the newest process
    for (const RankEvent& event : events_) {
      const auto* joining = event.as<moetrain::JoiningEvent>();
      if (joining != nullptr && event.header.rank == rank && joining->pid > 0) pid = joining->pid;
    }
    if (pid == 0) {
      return make_error(ErrorCode::kFailedPrecondition,
                        "moetrain run: rank {} has not said its pid", rank);
    }
    pids.push_back(static_cast<pid_t>(pid));
  }
  const uint64_t now_ns = monotonic_ns();
  for (const pid_t pid : pids) ::kill(pid, number);
  return now_ns;
}

void LiveRun::stop() const { process_->signal(SIGTERM); }

Status LiveRun::finish(int exit_code) {
  while (monotonic_ns() < deadline_ns_ && read_until(deadline_ns_)) {
  }
  if (!end_) return too_late("its end");
  const int code = end_->signal != 0 ? kSignalExit + end_->signal : end_->exit_code;
  if (code == exit_code) return {};
  return make_error(ErrorCode::kFailedPrecondition, "moetrain run ended with {}: {}", end_->text(),
                    run_log(folder_.path()));
}

}  // namespace bench
