#include "trainer/elastic/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>

#include "formats/base/assert.h"
#include "trainer/elastic/stop_signals.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::base::UniqueFd;

namespace {

// What the child does between fork and exec: system calls only.
[[noreturn]] void become(const Process::Options& options, char* const* arguments,
                         char* const* environment, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, options.death_signal);
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  ::setpgid(0, 0);
  // No handler of ours: a signal from here on is for the program that this becomes. What is ignored
  // stays so.
  for (const int number : kStopSignals) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    ::signal(number, SIG_DFL);
  }
  for (const int number : options.ignored_signals) ::signal(number, SIG_IGN);
  if (options.death_signal != SIGKILL) ::signal(options.death_signal, SIG_DFL);
  // Ignored by our main for itself: exec would pass that on.
  for (const int number : {SIGPIPE, SIGXFSZ}) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  int top = STDERR_FILENO;
  for (const auto& [ours, theirs] : options.descriptors) {
    // dup2 of a descriptor onto itself would leave it closed on exec.
    const int copy = ours == theirs ? ::fcntl(ours, F_SETFD, 0) : ::dup2(ours, theirs);
    if (copy < 0) ::_exit(127);
    top = std::max(top, theirs);
  }
  ::syscall(SYS_close_range, static_cast<unsigned>(top) + 1, ~0U, 0);
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

// Our environment with the additions in place of what they replace.
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
  // A signal to the child waits until it has put our handlers away.
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
  // The child is ours to wait for, so its number cannot have been given away yet.
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {
    const int error = errno;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return make_error(ErrorCode::kIo, "{}: pidfd_open: {}", program, std::strerror(error));
  }
  return Process(pid, std::move(pidfd));
}

void Process::signal(int number) const {
  if (pidfd_.valid()) ::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0);
}

std::optional<ProcessEnd> Process::reap() {
  if (!pidfd_.valid()) return std::nullopt;
  siginfo_t info{};
  const int waited = ::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG);
  if (waited != 0 || info.si_pid == 0) return std::nullopt;
  pidfd_.reset();
  if (info.si_code == CLD_EXITED) return ProcessEnd{.exit_code = info.si_status};
  return ProcessEnd{.signal = info.si_status};
}

std::optional<ProcessEnd> Process::wait(int timeout_ms) {
  if (!pidfd_.valid()) return std::nullopt;
  pollfd ended{pidfd_.get(), POLLIN, 0};
  while (::poll(&ended, 1, timeout_ms) < 0 && errno == EINTR) {
  }
  return reap();
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

std::string program_beside(const std::string& name) {
  return (std::filesystem::path(this_program()).parent_path() / name).string();
}

}  // namespace moetrain
