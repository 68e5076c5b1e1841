#include "tests/support/daemon_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace ckpt::testing {

namespace {

constexpr int kPatienceMs = 60'000;

struct Child {
  pid_t pid = 0;
  int out = -1;
  int err = -1;
};

Child spawn(const std::vector<std::string>& arguments, bool capture_out) {
  std::array<int, 2> out{-1, -1};
  std::array<int, 2> err{-1, -1};
  if (capture_out && ::pipe2(out.data(), O_CLOEXEC) != 0) return {};
  if (::pipe2(err.data(), O_CLOEXEC) != 0) return {};
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (capture_out) ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  if (out[1] >= 0) ::close(out[1]);
  ::close(err[1]);
  return {.pid = pid, .out = out[0], .err = err[0]};
}

// Appends what is there; false at the end of the stream.
bool read_some(int fd, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t got = ::read(fd, buffer.data(), buffer.size());
  if (got < 0 && errno == EINTR) return true;
  if (got <= 0) return false;
  text.append(buffer.data(), static_cast<size_t>(got));
  return true;
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = ::testing::TempDir() + "ckpt-XXXXXX";
  const char* made = ::mkdtemp(pattern.data());
  EXPECT_NE(made, nullptr) << pattern;
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string program(const std::string& name) {
  const auto tests = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return (tests.parent_path() / "bin" / name).string();
}

Exit run_program(const std::vector<std::string>& arguments) {
  const Child child = spawn(arguments, true);
  Exit result;
  std::array<pollfd, 2> streams{pollfd{child.out, POLLIN, 0}, pollfd{child.err, POLLIN, 0}};
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    if (::poll(streams.data(), streams.size(), kPatienceMs) == 0) {
      ADD_FAILURE() << arguments[0] << " says nothing and does not end";
      ::kill(child.pid, SIGKILL);
      break;
    }
    for (pollfd& stream : streams) {
      if (stream.fd < 0 || stream.revents == 0) continue;
      if (!read_some(stream.fd, &stream == &streams[0] ? result.out : result.err)) stream.fd = -1;
    }
  }
  ::close(child.out);
  ::close(child.err);
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

DaemonProcess::DaemonProcess(std::string data, std::vector<std::string> flags)
    : data_(std::move(data)), socket_(data_ + "/ckptd.sock"), flags_(std::move(flags)) {}

DaemonProcess::~DaemonProcess() {
  if (running()) kill();
}

void DaemonProcess::start() {
  ASSERT_FALSE(running());
  std::vector<std::string> arguments{program("ckptd"), "--data", data_, "--listen", socket_};
  arguments.insert(arguments.end(), flags_.begin(), flags_.end());
  const Child child = spawn(arguments, false);
  pid_ = child.pid;
  log_.clear();
  log_ended_ = false;
  reader_ = std::thread([this, fd = child.err] {
    for (std::string text; read_some(fd, text); text.clear()) {
      const std::lock_guard lock(mutex_);
      log_ += text;
      changed_.notify_all();
    }
    ::close(fd);
    const std::lock_guard lock(mutex_);
    log_ended_ = true;
    changed_.notify_all();
  });
  bool ready = false;
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs), [&] {
      ready = log_.find("ready\n") != std::string::npos;
      return ready || log_ended_;
    });
  }
  if (ready) return;
  kill();
  FAIL() << "ckptd did not get ready: " << log_;
}

std::string DaemonProcess::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

void DaemonProcess::kill() {
  ::kill(pid_, SIGKILL);
  wait_for_end();
}

int DaemonProcess::stop() {
  ::kill(pid_, SIGTERM);
  return wait_for_end();
}

int DaemonProcess::wait_for_end() {
  reader_.join();
  int status = 0;
  ::waitpid(std::exchange(pid_, 0), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace ckpt::testing
