// Trainers as processes of their own: the C program, and the example of the client API page.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>

#include "tests/client/trainers.h"
#include "tests/support/signals.h"

namespace ckpt::test {
namespace {

std::vector<std::string> c_trainer(const DaemonProcess& daemon, uint32_t rank, uint32_t size) {
  return {C_TRAINER_PROGRAM, daemon.socket(), "crun", std::to_string(rank), std::to_string(size)};
}

// Runs all ranks of one step, each as a process. Each must print the step that it saved.
void run_step(const DaemonProcess& daemon, uint32_t size, const std::string& step) {
  run_ranks(size, [&](uint32_t rank) {
    const Finished finished = run_program(c_trainer(daemon, rank, size));
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_EQ(finished.out, step + "\n");
  });
}

// Signal 0 is never delivered. The kernel would accept both calls.
TEST(SendSignal, RefusesPidOfNoSingleProcess) {
  EXPECT_FALSE(send_signal(-1, 0));
  EXPECT_FALSE(send_signal(0, 0));
  EXPECT_TRUE(send_signal(::getpid(), 0));
}

TEST(CProgram, SavesAndRestoresWithChangingRanks) {
  DaemonProcess daemon;
  run_step(daemon, 1, "1");
  run_step(daemon, 3, "2");
  run_step(daemon, 2, "3");
}

TEST(CProgram, KilledWhileFillingLeavesTheLastCommit) {
  DaemonProcess daemon;
  run_step(daemon, 2, "1");
  // Rank 1 stops half-way through its share and is killed; rank 0 hears of it.
  auto arguments = c_trainer(daemon, 1, 2);
  std::string command = "exec";
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  command += " hang";
  int out[2];
  ASSERT_EQ(::pipe(out), 0);
  const pid_t victim = ::fork();
  if (victim == 0) {
    ::dup2(out[1], 1);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(out[1]);
  Finished survivor;
  std::thread other([&] { survivor = run_program(c_trainer(daemon, 0, 2)); });
  char said[16] = {};
  EXPECT_GT(::read(out[0], said, sizeof said - 1), 0);
  EXPECT_STREQ(said, "hanging\n");
  ::close(out[0]);
  ASSERT_TRUE(send_signal(victim, SIGKILL));
  ::waitpid(victim, nullptr, 0);
  other.join();
  EXPECT_EQ(survivor.exit_code, 1);
  // Wherever it was when the epoch ended.
  EXPECT_NE(survivor.err.find(": aborted: "), std::string::npos) << survivor.err;
  run_step(daemon, 2, "2");  // step 2 again: nothing of the first try is in the way
}

TEST(ClientExample, ResumesAndSaves) {
  DaemonProcess daemon({"--arena", "256MiB"});  // faulting in less of it takes less time
  const std::vector<std::string> environment = {"CKPTD_SOCKET=unix:" + daemon.socket(),
                                                "CKPTD_RUN=page"};
  for (int step = 1; step <= 2; ++step) {
    const Finished finished = run_program({CLIENT_API_EXAMPLE_PROGRAM}, environment);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_EQ(finished.out, "step " + std::to_string(step) + " is durable, weight " +
                                std::to_string(step + 1) + ".0\n");
  }
}

}  // namespace
}  // namespace ckpt::test
