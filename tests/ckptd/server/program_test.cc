// The program ckptd: its flags, its configuration, its lock, its exit codes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/support/daemon_process.h"
#include "tests/support/raw_client.h"
#include "tests/support/signals.h"

namespace {

using ckpt::test::DaemonProcess;
using ckpt::test::program;
using ckpt::test::RawClient;
using ckpt::test::run_program;
using ckpt::test::send_signal;
using ckpt::test::TempFolder;
using testing::HasSubstr;
using testing::Not;

std::string write_file(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  return path;
}

TEST(CkptdProgram, ASecondDaemonOnOneDirectoryIsRefused) {
  const TempFolder directory;
  DaemonProcess daemon({"--arena", "64MiB"});
  const auto second = run_program(
      {program("ckptd"), "--data", daemon.data(), "--listen", directory.path("other.sock")});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr("another ckptd is running on it"));
  EXPECT_THAT(second.err, HasSubstr(fmt::format("by process {} on host ", daemon.pid())));
  EXPECT_THAT(second.err, HasSubstr("; use that ckptd, stop it, or choose another directory\n"));
  RawClient client(daemon.socket());
  client.hello_control();
}

TEST(CkptdProgram, CreatedStoreIsLoggedOnce) {
  const TempFolder folder;
  const std::string data = folder.path("no/such/store");
  DaemonProcess daemon({"--arena", "64MiB"}, data);
  const std::string line =
      "created " + std::filesystem::absolute(data).lexically_normal().string() + "\n";
  EXPECT_THAT(daemon.log(), HasSubstr(line));
  daemon.crash_and_restart();
  const std::string log = daemon.log();
  EXPECT_EQ(log.find(line), log.rfind(line)) << log;
}

TEST(CkptdProgram, RefusesSocketInUseAndReplacesStaleSocket) {
  const TempFolder two;
  DaemonProcess daemon({"--arena", "64MiB"});
  const auto other =
      run_program({program("ckptd"), "--data", two.path(), "--listen", "unix:" + daemon.socket()});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("another daemon listens on it"));
  EXPECT_THAT(other.err, HasSubstr("; --listen unix:PATH names another one"));
  daemon.kill();
  ASSERT_TRUE(std::filesystem::exists(daemon.socket()));
  daemon.start();
  RawClient client(daemon.socket());
  client.hello_control();
}

TEST(CkptdProgram, FirstStartAndCleanStopLogNoWarning) {
  DaemonProcess daemon({"--arena", "64MiB"});
  EXPECT_EQ(daemon.stop(), 0);
  EXPECT_THAT(daemon.log(), HasSubstr("ready"));
  EXPECT_THAT(daemon.log(), Not(HasSubstr("warning"))) << daemon.log();
  EXPECT_THAT(daemon.log(), Not(HasSubstr("error"))) << daemon.log();
}

TEST(CkptdProgram, SigtermDrainsAndExitsWithZero) {
  DaemonProcess daemon({"--arena", "64MiB"});
  EXPECT_EQ(daemon.stop(), 0) << daemon.log();
  EXPECT_FALSE(std::filesystem::exists(daemon.socket()));
}

TEST(CkptdProgram, DrainsOnEveryTerminationSignal) {
  for (const int signal : {SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGPWR}) {
    DaemonProcess daemon({"--arena", "64MiB"});
    EXPECT_EQ(daemon.stop(signal), 0) << daemon.log();
    EXPECT_THAT(daemon.log(), HasSubstr(::sigabbrev_np(signal)));
    EXPECT_FALSE(std::filesystem::exists(daemon.socket()));
  }
}

TEST(CkptdProgram, SignalInheritedAsIgnoredStaysIgnored) {
  ::signal(SIGHUP, SIG_IGN);  // as nohup does
  DaemonProcess daemon({"--arena", "64MiB"});
  ::signal(SIGHUP, SIG_DFL);
  ASSERT_TRUE(send_signal(daemon.pid(), SIGHUP));
  RawClient client(daemon.socket());
  client.hello_control();
  EXPECT_EQ(daemon.stop(), 0) << daemon.log();
  EXPECT_THAT(daemon.log(), Not(HasSubstr("SIGHUP")));
}

// True if this thread's table of descriptors has the file.
bool has_open(const std::filesystem::path& thread, const std::string& file) {
  std::error_code ended;
  for (const auto& fd : std::filesystem::directory_iterator(thread / "fd", ended)) {
    if (std::filesystem::read_symlink(fd.path(), ended) == file) return true;
  }
  return false;
}

// Signals that the thread blocks: bit N-1 is signal N.
uint64_t blocked_signals(const std::filesystem::path& thread) {
  std::ifstream status(thread / "status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
  }
  return ~uint64_t{0};  // the thread has ended
}

// The kernel gives a signal to any thread that does not block it. Its handler writes to a pipe, and
// threads of the quarantine do not have that descriptor.
TEST(CkptdProgram, ThreadsWithoutTheSignalPipeBlockSignals) {
  DaemonProcess daemon({"--arena", "64MiB"});
  if (daemon.log().find("unshare(CLONE_FILES)") != std::string::npos) {
    GTEST_SKIP() << "all threads share one table of descriptors here";
  }
  const std::string lock = std::filesystem::canonical(daemon.data()).string() + "/lock";
  int with_own_table = 0;
  const std::filesystem::path threads = fmt::format("/proc/{}/task", daemon.pid());
  for (const auto& thread : std::filesystem::directory_iterator(threads)) {
    if (has_open(thread.path(), lock)) continue;
    ++with_own_table;
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGPWR}) {
      EXPECT_TRUE(blocked_signals(thread.path()) >> (signal - 1) & 1) << ::sigabbrev_np(signal);
    }
  }
  EXPECT_GE(with_own_table, 1);
}

TEST(CkptdProgram, ConfigurationErrorsNameKeyAndLine) {
  const TempFolder directory;
  const std::string path =
      write_file(directory.path("c.toml"), "io = \"uring\"\narenna = \"1GiB\"\n");
  const auto typo = run_program(
      {program("ckptd"), "--data", directory.path("d"), "--config", path, "--check-config"});
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_THAT(typo.err, HasSubstr("c.toml:2: unknown key arenna"));
  EXPECT_FALSE(std::filesystem::exists(directory.path("d")));
}

// The error names the place to edit: a line of the file, a flag or a variable.
TEST(CkptdProgram, ErrorNamesFileLineFlagOrVariable) {
  const TempFolder directory;
  const auto path = write_file(directory.path("c.toml"), "\nsession_arena = \"1GiB\"\n");
  const auto check = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> command = {program("ckptd"), "--check-config", "--data",
                                        directory.path("d")};
    command.insert(command.end(), flags.begin(), flags.end());
    const auto exit = run_program(command);
    EXPECT_EQ(exit.exit_code, 2);
    return exit.err;
  };
  EXPECT_EQ(check({"--config", path, "--arena", "64MiB"}),
            "ckptd: " + path + ":2: session_arena 1.0 GiB: more than --arena 64.0 MiB\n");
  EXPECT_THAT(check({"--arena", "many"}), HasSubstr("ckptd: --arena: 'many' is not a size"));
  EXPECT_THAT(check({"--arena", ""}), HasSubstr("--arena: the value is empty"));
  EXPECT_EQ(check({"--io", "magic"}), "ckptd: --io magic: should be uring or pwritev\n");
  EXPECT_EQ(check({"--log-level", "loud"}),
            "ckptd: --log-level loud: should be debug, info, warn or error\n");
  const std::vector<std::string> by_environment = {
      "/usr/bin/env", "CKPTD_IO=magic", program("ckptd"), "--data", "x", "--check-config"};
  EXPECT_EQ(run_program(by_environment).err, "ckptd: CKPTD_IO magic: should be uring or pwritev\n");
}

TEST(CkptdProgram, ConfigurationMustBeRegularFile) {
  const TempFolder directory;
  const auto exit = run_program({program("ckptd"), "--data", directory.path("d"), "--config",
                                 directory.path(), "--check-config"});
  EXPECT_EQ(exit.exit_code, 2);
  EXPECT_THAT(exit.err, HasSubstr("not a regular file"));
  const auto none = run_program({program("ckptd"), "--data", directory.path("d"), "--config",
                                 directory.path("none.toml"), "--check-config"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("none.toml: no such file"));
}

// A bad address is found before the store is opened: the store is not even created.
TEST(CkptdProgram, BadAddressLeavesTheStoreUntouched) {
  const TempFolder directory;
  const std::string data = directory.path("data");
  const auto socket = run_program(
      {program("ckptd"), "--data", data, "--listen", directory.path("none/ckptd.sock")});
  EXPECT_EQ(socket.exit_code, 1);
  EXPECT_THAT(socket.err, HasSubstr("none/ckptd.sock"));
  const auto http = run_program({program("ckptd"), "--data", data, "--http", "192.0.2.1:1"});
  EXPECT_EQ(http.exit_code, 1);
  EXPECT_THAT(http.err, HasSubstr("http 192.0.2.1:1"));
  EXPECT_FALSE(std::filesystem::exists(data));
}

// The FIFO has no writer: a blocking open() would never return.
TEST(CkptdProgram, FifoInPlaceOfJournalFailsAtOnce) {
  const TempFolder directory;
  const std::string data = directory.path("data");
  std::filesystem::create_directories(data + "/journal");
  ASSERT_EQ(::mkfifo((data + "/journal/journal.log").c_str(), 0600), 0);
  const auto exit = run_program({program("ckptd"), "--data", data, "--arena", "64MiB"});
  EXPECT_EQ(exit.exit_code, 1);
  EXPECT_THAT(exit.err, HasSubstr("journal/journal.log: not a regular file"));
}

// Waits until a client can connect; fails after 20 s.
void await_client_connection(const DaemonProcess& daemon) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  ckpt::test::Finished asked;
  do {
    asked = run_program({program("ckptctl"), "--socket", daemon.socket(), "runs"});
  } while (asked.exit_code != 0 && std::chrono::steady_clock::now() < end);
  EXPECT_EQ(asked.exit_code, 0) << asked.err << daemon.log();
}

TEST(CkptdProgram, RemovedSocketFileIsRecreated) {
  DaemonProcess daemon({"--arena", "64MiB"});
  RawClient before(daemon.socket());
  before.hello_control();
  std::filesystem::remove(daemon.socket());
  std::filesystem::remove(daemon.socket() + ".lock");
  await_client_connection(daemon);
  EXPECT_THAT(daemon.log(), HasSubstr("its file was gone"));
  EXPECT_TRUE(before.query("status", "{}").has_value()) << "who was connected stays";
  const TempFolder two;
  const auto other =
      run_program({program("ckptd"), "--data", two.path(), "--listen", "unix:" + daemon.socket()});
  EXPECT_THAT(other.err, HasSubstr("another daemon listens on it"));
}

TEST(CkptdProgram, LostSocketFolderIsReportedUntilRestored) {
  const TempFolder folder;
  const std::string run = folder.path("run");
  std::filesystem::create_directory(run);
  DaemonProcess daemon({"--arena", "64MiB", "--listen", "unix:" + run + "/s"});
  std::filesystem::remove_all(run);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (daemon.log().find("cannot be made anew") == std::string::npos &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_THAT(daemon.log(), HasSubstr("no new client can connect: the file of socket "));
  std::filesystem::create_directory(run);
  await_client_connection(daemon);
}

// The lock decides, not the file at the path.
TEST(CkptdProgram, SocketLockHoldsWithoutTheSocketFile) {
  const TempFolder two;
  DaemonProcess daemon({"--arena", "64MiB"});
  std::filesystem::remove(daemon.socket());
  const auto other =
      run_program({program("ckptd"), "--data", two.path(), "--listen", "unix:" + daemon.socket()});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("another daemon listens on it"));
}

TEST(CkptdProgram, RefusesArenaAboveSessionQuota) {
  const TempFolder directory;
  const std::string path = write_file(directory.path("c.toml"),
                                      "session_arena = \"4MiB\"\nsession_arena_max = \"4MiB\"\n");
  DaemonProcess daemon({"--arena", "64MiB", "--config", path});
  const auto ask = [&](uint64_t bytes) {
    RawClient client(daemon.socket());
    ckpt::fb::HelloT hello;
    hello.protocol_version = ckpt::wire::kProtocolVersion;
    hello.arena_bytes = bytes;
    hello.slab_bytes = 64 << 10;
    client.send(std::move(hello));
    return client.next();
  };
  const auto refused = ask(8 << 20);
  ASSERT_TRUE(refused.has_value());
  ASSERT_EQ(refused->body.type, ckpt::fb::MessageBody::ErrorReply);
  EXPECT_THAT(
      refused->body.AsErrorReply()->message,
      testing::AllOf(HasSubstr("8.0 MiB"), HasSubstr("4.0 MiB"), HasSubstr("--session-arena-max")));
  const auto granted = ask(4 << 20);
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(granted->body.type, ckpt::fb::MessageBody::Welcome);
}

// Bytes of a new session's arena that are faulted in at once.
uint64_t warm_bytes(const DaemonProcess& daemon) {
  RawClient client(daemon.socket());
  ckpt::fb::HelloT hello;
  hello.protocol_version = ckpt::wire::kProtocolVersion;
  hello.arena_bytes = 8 << 20;
  hello.slab_bytes = 64 << 10;
  client.send(std::move(hello));
  const auto answer = client.next();
  const bool granted = answer && answer->body.type == ckpt::fb::MessageBody::Welcome;
  EXPECT_TRUE(granted);
  return granted ? answer->body.AsWelcome()->warm_bytes : 0;
}

// Asks without taking memory: sessions with an arena have priority over the pool.
uint64_t warm_pool_bytes(RawClient& control) {
  const auto reply = control.query("status", "{}");
  EXPECT_TRUE(reply.has_value());
  return reply ? nlohmann::json::parse(reply->json).at("warm_pool_bytes").get<uint64_t>() : 0;
}

TEST(CkptdProgram, MemoryIsWarmBeforeASessionAsks) {
  const TempFolder directory;
  const std::string path = write_file(directory.path("c.toml"), "session_arena = \"8MiB\"\n");
  const DaemonProcess daemon({"--arena", "64MiB", "--config", path, "--warm-pool", "16MiB"});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  RawClient control(daemon.socket());
  control.hello_control();
  while (warm_pool_bytes(control) < 8u << 20) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_EQ(warm_bytes(daemon), 8u << 20);
}

// The measurement runs once. Its result depends on the disk and is not tested.
TEST(CkptdProgram, DiskIsMeasuredOnce) {
  const TempFolder directory;
  const std::string path = write_file(directory.path("c.toml"), "segment = \"16MiB\"\n");
  DaemonProcess daemon({"--arena", "64MiB", "--config", path, "--io-shape", "auto"});
  const auto times_measured = [&daemon] {
    const std::string log = daemon.log();
    size_t times = 0;
    for (size_t at = 0; (at = log.find("disk: written to in ", at)) != std::string::npos; ++at) {
      ++times;
    }
    return times;
  };
  EXPECT_EQ(times_measured(), 1u) << daemon.log();
  EXPECT_TRUE(std::filesystem::exists(daemon.data() + "/io-shape"));
  EXPECT_FALSE(std::filesystem::exists(daemon.data() + "/calibration.bytes"));
  EXPECT_EQ(daemon.stop(), 0);
  daemon.start();
  EXPECT_EQ(times_measured(), 1u) << daemon.log();
}

TEST(CkptdProgram, AnArenaLargerThanMemoryIsRefused) {
  const TempFolder directory;
  const auto exit =
      run_program({program("ckptd"), "--data", directory.path(), "--arena", "1000TiB"});
  EXPECT_EQ(exit.exit_code, 2);
  EXPECT_THAT(exit.err, HasSubstr("more than the memory of this machine"));
}

TEST(CkptdProgram, BadUsageExitsWithTwo) {
  EXPECT_EQ(run_program({program("ckptd")}).exit_code, 2);
  EXPECT_EQ(run_program({program("ckptd"), "--dta", "x"}).exit_code, 2);
  EXPECT_EQ(run_program({program("ckptd"), "--data", "x", "--io", "magic"}).exit_code, 2);
  EXPECT_EQ(run_program({program("ckptd"), "--data", "x", "--io-shape", "4MiB"}).exit_code, 2);
  EXPECT_EQ(run_program({program("ckptd"), "--help"}).exit_code, 0);
}

// A forked child keeps the socket open. The trainer's death must be seen at once all the same.
TEST(CkptdProgram, DetectsProcessDeathWhileChildHoldsSocket) {
  DaemonProcess daemon({"--arena", "64MiB", "--log-level", "debug"});
  int ready[2];
  int hold[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(hold), 0);
  const pid_t trainer = ::fork();
  if (trainer == 0) {
    RawClient client(daemon.socket());
    client.hello_control();
    if (::fork() == 0) {
      char byte = 0;
      ::close(hold[1]);
      ::_exit(static_cast<int>(::read(hold[0], &byte, 1)));  // lives until the test is over
    }
    ::_exit(::write(ready[1], "x", 1) == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(trainer, &status, 0), trainer);
  // After one answered query the loop has seen the death.
  const std::string said = "process " + std::to_string(trainer) + " died";
  for (int i = 0; i < 1000 && daemon.log().find(said) == std::string::npos; ++i) {
    RawClient client(daemon.socket());
    client.hello_control();
  }
  EXPECT_THAT(daemon.log(), HasSubstr(said));
  for (const int fd : {ready[0], ready[1], hold[0], hold[1]}) ::close(fd);
}

}  // namespace
