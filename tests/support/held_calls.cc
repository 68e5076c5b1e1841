#include "tests/support/held_calls.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <utility>

namespace ckpt::test {
namespace {

// How often the tracer looks for threads that stopped: waitpid has no descriptor to wait on.
constexpr int kPollMs = 1;

// Threads except the first, and except io_uring's workers, which cannot be traced; of this name.
std::vector<pid_t> other_threads(pid_t process, const std::string& wanted) {
  std::vector<pid_t> threads;
  const std::string folder = "/proc/" + std::to_string(process) + "/task";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const pid_t thread = std::stoi(entry.path().filename());
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    if (thread == process || name.starts_with("iou-")) continue;
    if (wanted.empty() || name == wanted) threads.push_back(thread);
  }
  return threads;
}

std::string path_of(pid_t thread, uint64_t descriptor) {
  std::error_code none;
  const std::string link = "/proc/" + std::to_string(thread) + "/fd/" + std::to_string(descriptor);
  return std::filesystem::read_symlink(link, none).string();
}

}  // namespace

HeldCalls::HeldCalls(pid_t process, std::set<long> calls, std::string path, std::string thread)
    : calls_(std::move(calls)),
      path_(std::move(path)),
      thread_(std::move(thread)),
      release_(::eventfd(0, EFD_CLOEXEC)) {
  std::promise<void> seized;
  std::future<void> done = seized.get_future();
  tracer_ = std::thread([this, process, seized = std::move(seized)]() mutable {
    seize(process);
    seized.set_value();
    watch();
  });
  done.wait();
}

HeldCalls::~HeldCalls() {
  EXPECT_EQ(::eventfd_write(release_.get(), 1), 0);
  tracer_.join();
}

bool HeldCalls::await_one(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return held_changed_.wait_for(lock, timeout, [this] { return held_one_; });
}

void HeldCalls::seize(pid_t process) {
  for (const pid_t thread : other_threads(process, thread_)) {
    const bool traced = ::ptrace(PTRACE_SEIZE, thread, nullptr, PTRACE_O_TRACESYSGOOD) == 0;
    EXPECT_TRUE(traced) << "thread " << thread << ": ptrace: " << std::strerror(errno);
    if (!traced) continue;
    int status = 0;
    EXPECT_EQ(::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr), 0) << std::strerror(errno);
    EXPECT_EQ(::waitpid(thread, &status, __WALL), thread) << std::strerror(errno);
    take(thread, status);
  }
  EXPECT_FALSE(running_.empty()) << "process " << process << " has no threads to hold";
}

void HeldCalls::watch() {
  pollfd released{release_.get(), POLLIN, 0};
  while (::poll(&released, 1, kPollMs) == 0) {
    int status = 0;
    for (;;) {
      const pid_t thread = ::waitpid(-1, &status, __WALL | __WNOTHREAD | WNOHANG);
      if (thread <= 0) break;
      take(thread, status);
    }
  }
  for (const pid_t thread : std::set<pid_t>(running_)) release(thread);
  for (const pid_t thread : held_) release(thread);
}

// The thread has stopped, or ended.
void HeldCalls::take(pid_t thread, int status) {
  running_.erase(thread);
  held_.erase(thread);
  if (!WIFSTOPPED(status)) return;
  int number = WSTOPSIG(status);
  if (number == (SIGTRAP | 0x80)) {
    __ptrace_syscall_info info{};
    const long bytes = ::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info);
    if (bytes > 0 && info.op == PTRACE_SYSCALL_INFO_ENTRY &&
        calls_.contains(static_cast<long>(info.entry.nr)) &&
        path_of(thread, info.entry.args[0]).find(path_) != std::string::npos) {
      held_.insert(thread);
      const std::lock_guard lock(mutex_);
      held_one_ = true;
      held_changed_.notify_all();
      return;
    }
  }
  // A stop by ptrace itself passes no signal on. A stop by a signal passes that signal on.
  if (number == (SIGTRAP | 0x80) || status >> 16 != 0) number = 0;
  running_.insert(thread);
  ::ptrace(PTRACE_SYSCALL, thread, nullptr,
           number);  // it may have been killed: the next wait tells
}

// A thread that was killed meanwhile cannot be detached; it is reaped.
void HeldCalls::release(pid_t thread) {
  int status = 0;
  if (!held_.contains(thread)) {
    ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
    if (::waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status)) return;
  }
  if (::ptrace(PTRACE_DETACH, thread, nullptr, nullptr) == 0) return;
  ::waitpid(thread, &status, __WALL);
}

}  // namespace ckpt::test
