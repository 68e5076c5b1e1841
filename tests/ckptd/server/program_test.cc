// The program ckptd: its flags, its configuration, its lock, its exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "ckptd/config.h"
#include "tests/support/daemon_process.h"
#include "tests/support/raw_client.h"

namespace {

using ckpt::test::DaemonProcess;
using ckpt::test::program;
using ckpt::test::RawClient;
using ckpt::test::run_program;
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
  RawClient client(daemon.socket());
  client.hello_control();
}

TEST(CkptdProgram, ASocketSomebodyListensOnIsRefusedAndAStaleOneReplaced) {
  const TempFolder two;
  DaemonProcess daemon({"--arena", "64MiB"});
  const auto other =
      run_program({program("ckptd"), "--data", two.path(), "--listen", "unix:" + daemon.socket()});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("another daemon listens on it"));
  daemon.kill();
  ASSERT_TRUE(std::filesystem::exists(daemon.socket()));
  daemon.start();
  RawClient client(daemon.socket());
  client.hello_control();
}

TEST(CkptdProgram, AFirstStartAndACleanEndGiveNothingToWarnOf) {
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

TEST(CkptdProgram, AConfigurationIsAFile) {
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

// What cannot be listened on is found before the store is opened: it is not even created.
TEST(CkptdProgram, AStartThatFailsForAnAddressLeavesTheStoreUntouched) {
  const TempFolder directory;
  const std::string data = directory.path("data");
  const auto socket = run_program(
      {program("ckptd"), "--data", data, "--listen", directory.path("none/ckptd.sock")});
  EXPECT_EQ(socket.exit_code, 1);
  EXPECT_THAT(socket.err, HasSubstr("none/ckptd.sock"));
  const auto http = run_program({program("ckptd"), "--data", data, "--http", "192.0.2.1:1"});
  EXPECT_EQ(http.exit_code, 1);
  EXPECT_THAT(http.err, HasSubstr("http 192.0.2.1:1"));
  EXPECT_FALSE(std::filesystem::exists(data + "/journal/journal.log"));
  EXPECT_FALSE(std::filesystem::exists(data + "/ckptd.sock"));
}

// The lock decides, whatever lies at the path.
TEST(CkptdProgram, ASocketPathBelongsToOneDaemonEvenWithoutItsFile) {
  const TempFolder two;
  DaemonProcess daemon({"--arena", "64MiB"});
  std::filesystem::remove(daemon.socket());
  const auto other =
      run_program({program("ckptd"), "--data", two.path(), "--listen", "unix:" + daemon.socket()});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("another daemon listens on it"));
}

TEST(CkptdProgram, ASessionAsksForNoMoreThanItsQuota) {
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
  EXPECT_THAT(refused->body.AsErrorReply()->message,
              testing::AllOf(HasSubstr("8388608"), HasSubstr("4194304")));
  const auto granted = ask(4 << 20);
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(granted->body.type, ckpt::fb::MessageBody::Welcome);
}

// How much of its arena a new session finds faulted in.
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

TEST(CkptdProgram, MemoryIsWarmBeforeASessionAsks) {
  const TempFolder directory;
  const std::string path = write_file(directory.path("c.toml"), "session_arena = \"8MiB\"\n");
  const DaemonProcess daemon({"--arena", "64MiB", "--config", path, "--warm-pool", "16MiB"});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  uint64_t warm = 0;
  while (warm == 0 && std::chrono::steady_clock::now() < deadline) warm = warm_bytes(daemon);
  EXPECT_EQ(warm, 8u << 20);
}

// Not what is found, which is the disk's business.
TEST(CkptdProgram, HowADiskIsWrittenToIsFoundOnce) {
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
  EXPECT_THAT(exit.err, HasSubstr("more than this machine's memory"));
}

TEST(CkptdProgram, BadUsageExitsWithTwo) {
  EXPECT_EQ(run_program({program("ckptd")}).exit_code, 2);
  EXPECT_EQ(run_program({program("ckptd"), "--dta", "x"}).exit_code, 2);
  EXPECT_EQ(run_program({program("ckptd"), "--data", "x", "--io", "magic"}).exit_code, 2);
  EXPECT_EQ(run_program({program("ckptd"), "--data", "x", "--io-shape", "4MiB"}).exit_code, 2);
  EXPECT_EQ(run_program({program("ckptd"), "--help"}).exit_code, 0);
}

TEST(Config, ReadsEveryKeyAndRefusesWrongTypes) {
  const TempFolder directory;
  const std::string path =
      write_file(directory.path("good.toml"),
                 "data = \"/d\"\nlisten = \"unix:/s\"\nhttp = \"[::1]:0\"\nio = \"pwritev\"\n"
                 "io_shape = \"16x1MiB\"\n"
                 "arena = \"1GiB\"\nsession_arena = \"256MiB\"\nsession_arena_max = \"512MiB\"\n"
                 "warm_pool = \"768MiB\"\nsegment = \"64MiB\"\n"
                 "disk_reserve = \"1GiB\"\nsnapshot_deadline = \"90s\"\n"
                 "scrub_rate = \"128MiB\"\nscrub_interval = \"0s\"\nrecode_after = "
                 "\"1d\"\nallow_uids = [1000, 1001]\n"
                 "workers = 3\nalarms = \"refuse\"\nlog_level = \"warn\"\n");
  ckptd::Config config;
  const auto loaded = ckptd::load_config(path, config);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ASSERT_TRUE(ckptd::validate(config).ok());
  EXPECT_EQ(config.listen, "/s");
  EXPECT_EQ(config.io_shape, (ckptd::IoShape{.depth = 16, .bytes = 1u << 20}));
  EXPECT_EQ(config.arena_bytes, 1ull << 30);
  EXPECT_EQ(config.session_arena_max_bytes, 512ull << 20);
  EXPECT_EQ(config.warm_pool_bytes, 768ull << 20);
  EXPECT_EQ(config.snapshot_deadline, std::chrono::seconds(90));
  EXPECT_EQ(config.scrub_bytes_per_second, 128ull << 20);
  EXPECT_EQ(config.scrub_interval.count(), 0);
  EXPECT_EQ(config.recode_after, std::chrono::hours(24));
  EXPECT_EQ(config.allow_uids, (std::vector<uid_t>{1000, 1001}));
  EXPECT_EQ(config.alarms, "refuse");
  config.scrub_bytes_per_second = 0;
  EXPECT_THAT(ckptd::validate(config).error().message,
              HasSubstr("recode_after 86400 s: scrub_rate is 0"));
  config.recode_after = {};
  ASSERT_TRUE(ckptd::validate(config).ok());
  config.alarms = "loud";
  EXPECT_THAT(ckptd::validate(config).error().message,
              HasSubstr("alarms loud: off, warn or refuse"));
  config.alarms = "off";
  config.warm_pool_bytes = 1ull << 50;
  EXPECT_THAT(ckptd::validate(config).error().message,
              HasSubstr("warm_pool 1.0 PiB: more than this machine's memory"));
  config.warm_pool_bytes.reset();
  ASSERT_TRUE(ckptd::validate(config).ok());
  EXPECT_EQ(config.warm_pool_bytes, config.session_arena_bytes) << "where nothing is said";
  for (const char* line :
       {"arena = 5", "arena = \"5 bananas\"", "workers = -1", "io = 3", "io_shape = \"fast\"",
        "io_shape = 32", "allow_uids = [\"root\"]", "snapshot_deadline = \"10\"",
        "warm_pool = true", "data = ", "scrub_rate = 5", "scrub_rate = \"1KiB\"",
        "scrub_rate = \"fast\"", "scrub_interval = \"5ms\"", "scrub_interval = \"-1s\"",
        "scrub_interval = \"soon\"", "scrub_interval = 7", "recode_after = \"5ms\"",
        "recode_after = 86400"}) {
    const auto bad = write_file(directory.path("bad.toml"), std::string("\n") + line + "\n");
    const auto refused = ckptd::load_config(bad, config);
    ASSERT_FALSE(refused.ok()) << line;
    const std::string_view key = std::string_view(line).substr(0, std::string_view(line).find(' '));
    EXPECT_THAT(refused.error().message, HasSubstr("bad.toml:2"));
    if (key != "data") {  // not TOML at all
      EXPECT_THAT(refused.error().message, HasSubstr(key));
    }
  }
}

// A forked child keeps the socket open; the trainer's death must be seen all the same, at once.
TEST(CkptdProgram, TheDeathOfAProcessIsSeenWhileAChildHoldsItsSocket) {
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
  // One answered question later, the loop has seen it.
  const std::string said = "process " + std::to_string(trainer) + " died";
  for (int i = 0; i < 1000 && daemon.log().find(said) == std::string::npos; ++i) {
    RawClient client(daemon.socket());
    client.hello_control();
  }
  EXPECT_THAT(daemon.log(), HasSubstr(said));
  for (const int fd : {ready[0], ready[1], hold[0], hold[1]}) ::close(fd);
}

}  // namespace
