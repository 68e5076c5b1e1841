#include "trainer/elastic/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include "formats/base/assert.h"
#include "trainer/elastic/stop_signals.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::base::UniqueFd;

namespace {

constexpr int64_t kReapEveryMs = 20;  // without a pidfd to poll

// For the child. Before Linux 5.9, and in some sandboxes, there is no close_range().
void close_above(int top) {
  if (::syscall(SYS_close_range, static_cast<unsigned>(top) + 1, ~0U, 0) == 0) return;
  constexpr rlim_t kDescriptorsMax = 65'536;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min(limit.rlim_max, kDescriptorsMax));
  for (int descriptor = top + 1; descriptor < end; ++descriptor) ::close(descriptor);
}

// The child's code between fork and exec: system calls only.
[[noreturn]] void become(const Process::Options& options, char* const* arguments,
                         char* const* environment, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, options.death_signal);
  if (::getppid() != parent) ::_exit(127);  // the parent died before prctl
  ::setpgid(0, 0);
  // Removes our handlers: later signals are for the executed program. Ignored signals stay ignored.
  for (const int number : kStopSignals) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    ::signal(number, SIG_DFL);
  }
  for (const int number : options.ignored_signals) ::signal(number, SIG_IGN);
  if (options.death_signal != SIGKILL) ::signal(options.death_signal, SIG_DFL);
  // Our main ignores these for itself: exec would pass that on.
  for (const int number : {SIGPIPE, SIGXFSZ}) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  int top = STDERR_FILENO;
  for (const auto& [ours, theirs] : options.descriptors) {
    // dup2 of a descriptor onto itself would leave it close-on-exec.
    const int copy = ours == theirs ? ::fcntl(ours, F_SETFD, 0) : ::dup2(ours, theirs);
    if (copy < 0) ::_exit(127);
    top = std::max(top, theirs);
  }
  close_above(top);
  ::execve(arguments[0], arguments, environment);
  ::_exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Our environment, with `additions` replacing variables of the same name.
std::vector<std::string> environment_with(const std::vector<std::string>& additions) {
  std::vector<std::string> result = additions;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    const bool replaced = std::any_of(additions.begin(), additions.end(),
                                      [&](const auto& a) { return a.starts_with(name); });
    if (!replaced) result.push_back(text);
  }
  return result;
}

}  // namespace

std::string ProcessEnd::text() const {
  if (signal != 0) return fmt::format("signal {} ({})", signal, ::strsignal(signal));
  return fmt::format("exit {}", exit_code);
}

Result<Process> Process::start(const Options& options) {
  CKPT_ASSERT(!options.arguments.empty());
  const std::string& program = options.arguments.front();
  if (::access(program.c_str(), X_OK) != 0) {
    return make_error(ErrorCode::kIo, "{}: cannot be started: {}", program, std::strerror(errno));
  }
  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> environment = environment_with(options.environment);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  const pid_t parent = ::getpid();
  // Blocks signals to the child until it has removed our handlers.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  const int fork_error = errno;
  if (pid == 0) become(options, argv.data(), envp.data(), parent);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    return make_error(ErrorCode::kIo, "{}: cannot be started: {}", program,
                      std::strerror(fork_error));
  }
  return Process(pid, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))));
}

Process::Process(Process&& other) noexcept
    : pid_(other.pid_),
      reaped_(std::exchange(other.reaped_, true)),
      pidfd_(std::move(other.pidfd_)) {}

Process& Process::operator=(Process&& other) noexcept {
  pid_ = other.pid_;
  reaped_ = std::exchange(other.reaped_, true);
  pidfd_ = std::move(other.pidfd_);
  return *this;
}

void Process::signal(int number) const {
  if (!reaped_ && pid_ > 0) ::kill(pid_, number);
}

std::optional<ProcessEnd> Process::reap() {
  if (reaped_) return std::nullopt;
  siginfo_t info{};
  const int waited = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG);
  if (waited != 0 || info.si_pid == 0) return std::nullopt;
  reaped_ = true;
  pidfd_.reset();
  if (info.si_code == CLD_EXITED) return ProcessEnd{.exit_code = info.si_status};
  return ProcessEnd{.signal = info.si_status};
}

std::optional<ProcessEnd> Process::wait(int timeout_ms) {
  const auto now = std::chrono::steady_clock::now;
  const auto end = now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    std::optional<ProcessEnd> ended = reap();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now()).count();
    if (ended || reaped_ || left <= 0) return ended;
    // Without a pidfd: poll at intervals.
    const int64_t step = pidfd_.valid() ? left : std::min<int64_t>(left, kReapEveryMs);
    pollfd end_of_it{pidfd_.get(), POLLIN, 0};
    ::poll(&end_of_it, 1, static_cast<int>(step));
  }
}

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return make_error(ErrorCode::kIo, "pipe: {}", std::strerror(errno));
  }
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::string this_program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::string sibling_program(const std::string& name) {
  return (std::filesystem::path(this_program()).parent_path() / name).string();
}

}  // namespace moetrain
