#include "tests/support/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <cstdlib>

#include "tests/support/signals.h"

namespace ckpt::test {
namespace {

constexpr int kReadMaxMs = 60'000;  // a busy machine takes its time

}  // namespace

Terminal::Terminal(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment, Output output) {
  std::vector<char*> argv;
  for (const std::string& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
  argv.push_back(nullptr);
  int master = -1;
  int slave = -1;
  EXPECT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
  master_ = base::UniqueFd(master);
  slave_ = base::UniqueFd(slave);
  for (const int fd : {master, slave}) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::login_tty(slave);
  if (output == Output::kStopped) ::tcflow(STDOUT_FILENO, TCOOFF);
  for (const std::string& one : environment) ::putenv(const_cast<char*>(one.c_str()));
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

Terminal::~Terminal() {
  if (ended_ || pid_ <= 0) return;
  EXPECT_TRUE(send_signal(pid_, SIGKILL));
  ::waitpid(pid_, nullptr, 0);
}

// False: no more output.
bool Terminal::read_some() {
  pollfd ready{master_.get(), POLLIN, 0};
  if (::poll(&ready, 1, kReadMaxMs) != 1) return false;
  char buffer[4096];
  const ssize_t got = ::read(master_.get(), buffer, sizeof buffer);
  if (got <= 0) return false;  // EIO: the other end is closed
  screen_.append(buffer, static_cast<size_t>(got));
  return true;
}

const std::string& Terminal::read_until(const std::string& text) {
  slave_ = base::UniqueFd();  // so that the program's end is seen
  while (screen_.find(text) == std::string::npos && read_some()) {
  }
  return screen_;
}

void Terminal::type(const std::string& text) {
  EXPECT_EQ(::write(master_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

void Terminal::resume() { EXPECT_EQ(::tcflow(slave_.get(), TCOON), 0); }

int Terminal::wait() {
  slave_ = base::UniqueFd();
  while (read_some()) {
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
  ended_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace ckpt::test
