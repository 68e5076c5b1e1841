#include "tests/client/told_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include "formats/base/assert.h"

namespace ckpt::test {
namespace {

constexpr int kAnswerMs = 60'000;

moetrain::Process start(const std::string& socket, base::UniqueFd& ours) {
  int pair[2] = {-1, -1};
  CKPT_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  ours.reset(pair[0]);
  const base::UniqueFd theirs(pair[1]);
  moetrain::Process::Options options;
  options.arguments = {TOLD_TRAINER_PROGRAM, socket};
  options.descriptors = {{theirs.get(), 0}, {theirs.get(), 1}};
  auto process = moetrain::Process::start(options);
  CKPT_ASSERT_MSG(process.ok(), "told_trainer does not start");
  return std::move(process).value();
}

}  // namespace

ToldProcess::ToldProcess(const std::string& socket) : process_(start(socket, line_)) {}

ToldProcess::~ToldProcess() { kill(); }

void ToldProcess::kill() {
  if (process_.pid() < 0 || !line_.valid()) return;
  process_.signal(SIGKILL);
  EXPECT_TRUE(process_.wait(kAnswerMs).has_value()) << "a killed trainer does not end";
  line_.reset();
}

void ToldProcess::say(const std::string& command) {
  last_command_ = command;
  const std::string line = command + "\n";
  EXPECT_EQ(::send(line_.get(), line.data(), line.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(line.size()))
      << command << ": the trainer is gone";
}

std::string ToldProcess::answer() {
  for (;;) {
    const size_t end = received_.find('\n');
    if (end != std::string::npos) {
      const std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    pollfd entry{line_.get(), POLLIN, 0};
    char buffer[4096];
    const bool ready = ::poll(&entry, 1, kAnswerMs) == 1;
    const ssize_t got = ready ? ::recv(line_.get(), buffer, sizeof buffer, 0) : -1;
    if (got <= 0) {
      ADD_FAILURE() << last_command_ << ": no answer" << (ready ? ", the trainer ended" : "");
      return "";
    }
    received_.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace ckpt::test
