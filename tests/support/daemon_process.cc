#include "tests/support/daemon_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>

#include "formats/base/unique_fd.h"
#include "tests/support/signals.h"

namespace ckpt::test {
namespace {

// A sanitized daemon on a busy machine still starts within this.
constexpr std::chrono::seconds kStartMax{60};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// stdout and stderr go to files; `environment` is added to this process's.
pid_t spawn(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
            const std::string& out, const std::string& err) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (const std::string& variable : environment) {
    envp.push_back(const_cast<char*>(variable.c_str()));
  }
  for (char** variable = environ; *variable != nullptr; ++variable) envp.push_back(*variable);
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  const int flags = O_WRONLY | O_CREAT | O_APPEND;
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), flags, 0600);
  ::posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), flags, 0600);
  pid_t pid = -1;
  const int result = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(result, 0) << arguments[0] << ": " << std::strerror(result);
  return result == 0 ? pid : -1;
}

int wait_exit(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// True once `log` holds the line `ready` beyond `from`; false if the process ends before.
bool wait_ready(pid_t pid, const std::string& log, size_t from) {
  const base::UniqueFd ended(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const auto end = std::chrono::steady_clock::now() + kStartMax;
  while (std::chrono::steady_clock::now() < end) {
    const std::string said = "\n" + read_file(log).substr(from);
    if (said.find("\nready\n") != std::string::npos) return true;
    pollfd entry{ended.get(), POLLIN, 0};
    if (::poll(&entry, 1, 5) == 1) return false;
  }
  return false;
}

}  // namespace

std::string program(const std::string& name) {
  const auto tests = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return (tests.parent_path() / "bin" / name).string();
}

DaemonProcess::DaemonProcess(std::vector<std::string> more_arguments, std::string data)
    : arguments_(std::move(more_arguments)),
      data_(data.empty() ? folder_.path("data") : std::move(data)),
      socket_(folder_.path("ckptd.sock")) {
  const auto listen = std::ranges::find(arguments_, "--listen");
  if (listen == arguments_.end()) {
    arguments_.insert(arguments_.end(), {"--listen", "unix:" + socket_});
  } else {
    socket_ = *std::next(listen);
  }
  start();
}

DaemonProcess::~DaemonProcess() {
  if (pid_ > 0) kill();
  if (testing::Test::HasFailure()) ADD_FAILURE() << "ckptd said:\n" << log();
}

void DaemonProcess::start() {
  std::vector<std::string> arguments{program("ckptd"), "--data", data()};
  arguments.insert(arguments.end(), arguments_.begin(), arguments_.end());
  // Many of them run beside each other: none keeps memory that no test asks for.
  if (std::ranges::find(arguments, "--warm-pool") == arguments.end()) {
    arguments.insert(arguments.end(), {"--warm-pool", "0"});
  }
  const size_t said = log().size();
  pid_ = spawn(arguments, {}, folder_.path("out"), folder_.path("err"));
  if (pid_ > 0 && wait_ready(pid_, folder_.path("err"), said)) return;
  ADD_FAILURE() << "ckptd is not ready";
  kill();
}

void DaemonProcess::kill() {
  if (pid_ <= 0) return;
  EXPECT_TRUE(send_signal(pid_, SIGKILL));
  wait_exit(pid_);
  pid_ = -1;
}

int DaemonProcess::stop(int signal) {
  if (pid_ <= 0) return -1;
  EXPECT_TRUE(send_signal(pid_, signal));
  const int status = wait_exit(pid_);
  pid_ = -1;
  return status;
}

std::string DaemonProcess::log() const { return read_file(folder_.path("err")); }

Finished run_program(const std::vector<std::string>& arguments,
                     const std::vector<std::string>& environment) {
  const TempFolder folder;
  const pid_t pid = spawn(arguments, environment, folder.path("out"), folder.path("err"));
  Finished finished;
  if (pid < 0) return finished;
  finished.exit_code = wait_exit(pid);
  finished.out = read_file(folder.path("out"));
  finished.err = read_file(folder.path("err"));
  return finished;
}

}  // namespace ckpt::test
