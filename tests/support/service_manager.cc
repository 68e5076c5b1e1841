#include "tests/support/service_manager.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/support/daemon_process.h"
#include "tests/support/signals.h"

namespace ckpt::test {
namespace {

using base::UniqueFd;

constexpr std::chrono::seconds kWaitMax{60};

UniqueFd bound_socket(int type, const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0)
      << path << ": " << std::strerror(errno);
  return fd;
}

bool same_file(int a, int b) {
  struct stat of_a {};
  struct stat of_b {};
  return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

// Moves `fds` to 3, 4, ... Runs between fork and exec, so it must not allocate.
void hand_over(const std::vector<int>& fds) {
  constexpr int kFirst = 3;
  const int beyond = kFirst + static_cast<int>(fds.size());
  // First all move out of the way: a descriptor may have the number that another is to get.
  std::array<int, 64> moved{};
  for (size_t i = 0; i < fds.size(); ++i) moved[i] = ::fcntl(fds[i], F_DUPFD_CLOEXEC, beyond);
  for (size_t i = 0; i < fds.size(); ++i) ::dup2(moved[i], kFirst + static_cast<int>(i));
}

std::string value_of(const std::string& text, const std::string& key) {
  const size_t at = ("\n" + text).find("\n" + key + "=");
  if (at == std::string::npos) return {};
  const size_t from = at + key.size() + 1;
  return text.substr(from, text.find('\n', from) - from);
}

}  // namespace

ServiceManager::ServiceManager(Options options)
    : options_(std::move(options)),
      notifications_(bound_socket(SOCK_DGRAM, folder_.path("notify"))),
      stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (options_.open_socket) {
    listener_ = bound_socket(SOCK_STREAM, socket());
    EXPECT_EQ(::listen(listener_.get(), 128), 0);
    arena_listener_ = bound_socket(SOCK_STREAM, socket() + ".arena");
    EXPECT_EQ(::listen(arena_listener_.get(), 128), 0);
  }
  ear_ = std::thread([this] { listen(); });
}

ServiceManager::~ServiceManager() {
  if (pid_ > 0) kill();
  const uint64_t one = 1;
  EXPECT_EQ(::write(stop_.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
  ear_.join();
  if (testing::Test::HasFailure()) ADD_FAILURE() << "ckptd said:\n" << log();
}

void ServiceManager::start() {
  std::vector<std::string> arguments{program("ckptd"), "--data", data(), "--listen",
                                     "unix:" + socket()};
  arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<int> fds;
  std::string names;
  const auto add = [&](int fd, const std::string& name) {
    fds.push_back(fd);
    names += (names.empty() ? "" : ":") + name;
  };
  if (listener_.valid()) {
    add(listener_.get(), "socket");
    add(arena_listener_.get(), "socket");
  }
  const std::string err = folder_.path("err");
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, held] : store_) {
      for (const UniqueFd& fd : held) add(fd.get(), name);
    }
    messages_.clear();
    pid_ = ::fork();
    if (pid_ == 0) {
      const int log = ::open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(log, 2);
      hand_over(fds);
      ::setenv("NOTIFY_SOCKET", folder_.path("notify").c_str(), 1);
      ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
      ::setenv("LISTEN_FDS", std::to_string(fds.size()).c_str(), 1);
      ::setenv("LISTEN_FDNAMES", names.c_str(), 1);
      if (options_.watchdog.count() > 0) {
        ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
        ::setenv("WATCHDOG_USEC", std::to_string(options_.watchdog.count()).c_str(), 1);
      }
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ASSERT_GT(pid_, 0);
  EXPECT_TRUE(wait_for("READY=1")) << "ckptd is not ready";
}

void ServiceManager::kill() {
  EXPECT_TRUE(send_signal(pid_, SIGKILL));
  EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
  pid_ = -1;
}

int ServiceManager::stop() {
  EXPECT_TRUE(send_signal(pid_, SIGTERM));
  int status = 0;
  EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool ServiceManager::wait_for(const std::string& text, size_t count) {
  std::unique_lock lock(mutex_);
  return heard_.wait_for(lock, kWaitMax, [&] {
    return static_cast<size_t>(std::count(messages_.begin(), messages_.end(), text)) >= count;
  });
}

size_t ServiceManager::stored(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = store_.find(name);
  return found == store_.end() ? 0 : found->second.size();
}

std::string ServiceManager::log() const {
  std::ifstream file(folder_.path("err"), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void ServiceManager::listen() {
  while (true) {
    std::array<pollfd, 2> either{pollfd{notifications_.get(), POLLIN, 0},
                                 pollfd{stop_.get(), POLLIN, 0}};
    if (::poll(either.data(), either.size(), -1) < 0) continue;
    if (either[1].revents != 0) return;
    std::array<char, 4096> text{};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control{};
    iovec vector{.iov_base = text.data(), .iov_len = text.size()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(notifications_.get(), &message, MSG_CMSG_CLOEXEC);
    if (got <= 0) continue;
    std::vector<UniqueFd> fds;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      std::array<int, 16> raw{};
      std::memcpy(raw.data(), CMSG_DATA(header), std::min(count, raw.size()) * sizeof(int));
      for (size_t i = 0; i < count; ++i) fds.emplace_back(raw[i]);
    }
    take(std::string(text.data(), static_cast<size_t>(got)), std::move(fds));
  }
}

// Holds each file only once, as systemd does.
void ServiceManager::take(const std::string& text, std::vector<UniqueFd> fds) {
  const std::lock_guard lock(mutex_);
  const std::string name = value_of(text, "FDNAME");
  if (value_of(text, "FDSTORE") == "1") {
    for (UniqueFd& fd : fds) {
      const bool known = std::any_of(store_.begin(), store_.end(), [&](const auto& held) {
        return std::any_of(held.second.begin(), held.second.end(),
                           [&](const UniqueFd& one) { return same_file(one.get(), fd.get()); });
      });
      if (!known) store_[name].push_back(std::move(fd));
    }
  } else if (value_of(text, "FDSTOREREMOVE") == "1") {
    store_.erase(name);
  }
  messages_.push_back(text);
  heard_.notify_all();
}

}  // namespace ckpt::test
