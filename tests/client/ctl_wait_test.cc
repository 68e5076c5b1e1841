// ckptctl wait: its output while it waits, and its timeouts.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <future>

#include "tests/client/ctl_fixture.h"
#include "tests/support/signals.h"

namespace ckpt::test {
namespace {

using ::testing::HasSubstr;

TEST_F(Ctl, WaitReportsHungDaemon) {
  ASSERT_TRUE(send_signal(daemon_.pid(), SIGSTOP));
  const Finished hangs = ctl({"wait", "tiny@99", "--timeout", "4s"});
  ASSERT_TRUE(send_signal(daemon_.pid(), SIGCONT));
  EXPECT_EQ(hangs.exit_code, 1);
  EXPECT_THAT(hangs.err, HasSubstr("ckptd at socket " + daemon_.socket() + " has not answered"));
  EXPECT_THAT(hangs.err,
              HasSubstr("tiny@99: not durable within 4s (--timeout): ckptd at socket " +
                        daemon_.socket() + " has taken the connection and not answered for "));
}

TEST_F(Ctl, VerbReportsHungDaemon) {
  ASSERT_TRUE(send_signal(daemon_.pid(), SIGSTOP));
  const Finished hangs = ctl({"runs"});
  ASSERT_TRUE(send_signal(daemon_.pid(), SIGCONT));
  EXPECT_EQ(hangs.exit_code, 1);
  const std::string socket = "ckptctl: ckptd at socket " + daemon_.socket();
  EXPECT_EQ(hangs.err, socket + " is not ready; waiting at most 3.0 s for it\n" + socket +
                           " has taken the connection and not answered for 3.0 s: look at its "
                           "log, then repeat the command\n");
}

TEST_F(Ctl, WithoutASocketAVerbDoesNotWait) {
  const Finished none =
      run_program({program("ckptctl"), "runs", "--socket", daemon_.folder().path("none")});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, testing::Not(HasSubstr("waiting")));
}

TEST_F(Ctl, WaitKeepsTimeoutWhenDaemonDies) {
  const std::string pipe = daemon_.folder().path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto waiting = std::async(std::launch::async, [&] {
    return run_program({"/bin/sh", "-c", "exec \"$0\" wait tiny@99 --timeout 5s 2> \"$1\"",
                        program("ckptctl"), pipe},
                       {"CKPTD_SOCKET=unix:" + daemon_.socket()});
  });
  std::ifstream lines(pipe);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  daemon_.kill();
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_THAT(line, HasSubstr("no ckptd listens at socket " + daemon_.socket()));
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_THAT(line, HasSubstr("tiny@99: not durable within 5s (--timeout): show: socket " +
                              daemon_.socket()));
  EXPECT_EQ(waiting.get().exit_code, 1);
}

TEST_F(Ctl, WaitReportsMissingRunAtOnce) {
  const Finished never = ctl({"wait", "tinny@20", "--timeout", "2s"});
  EXPECT_EQ(never.exit_code, 1);
  EXPECT_EQ(never.err,
            "ckptctl: waiting up to 2s for tinny@20: run tinny: no such run\n"
            "ckptctl: tinny@20: not durable within 2s (--timeout): run tinny: no such run; "
            "`ckptctl runs` lists them\n");
  EXPECT_EQ(ctl({"wait", "tiny@20"}).err, "");
  const Finished later = ctl({"wait", "tiny@99", "--timeout", "2s"});
  EXPECT_EQ(later.exit_code, 1);
  EXPECT_THAT(later.err,
              testing::ContainsRegex(
                  "ckptctl: tiny@99: not durable within 2s \\(--timeout\\): run tiny"
                  ".*; its last durable step is 20, .* old; no process trains it now\n"));
  for (const std::vector<std::string>& slip :
       {std::vector<std::string>{"wait", "tiny@20", "--timeout", "2"},
        std::vector<std::string>{"export", "tiny", "--out", "x", "--shard-bytes", "2 lots"},
        std::vector<std::string>{"scrub", "--rate", "fast"}}) {
    const Finished refused = ctl(slip);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr(slip[slip.size() - 2] + ": '" + slip.back() + "' is not a"));
  }

  // A run that begins meanwhile. The line comes through the pipe before there is one.
  const std::string out = daemon_.folder().path("tiny-hf");
  json({"export", "tiny@20", "--out", out});
  const std::string pipe = daemon_.folder().path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto waiting = std::async(std::launch::async, [&] {
    return run_program(
        {"/bin/sh", "-c", "exec \"$0\" wait later@5 --json 2> \"$1\"", program("ckptctl"), pipe},
        {"CKPTD_SOCKET=unix:" + daemon_.socket()});
  });
  std::ifstream lines(pipe);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "ckptctl: waiting up to 60s for later@5: run later: no such run");
  json({"import", out, "--run", "later", "--step", "5"});
  const Finished there = waiting.get();
  EXPECT_EQ(there.exit_code, 0);
  EXPECT_EQ(Json::parse(there.out)["step"], 5);
  EXPECT_FALSE(std::getline(lines, line)) << line;
}

}  // namespace
}  // namespace ckpt::test
