// The configuration file: its keys, and the error messages for wrong files.
#include "ckptd/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include "tests/support/temp_folder.h"

namespace ckpt::test {
namespace {

using ckptd::Config;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;

class ConfigTest : public testing::Test {
 protected:
  Status load(const std::string& text) {
    std::ofstream(path_) << text;
    config_ = {};
    return ckptd::load_config(path_, config_);
  }
  // The validation error of a file that parses, without its path.
  std::string wrong(const std::string& text) {
    const Status loaded = load(text);
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return without_path(ckptd::validate(config_));
  }
  std::string unreadable(const std::string& text) { return without_path(load(text)); }
  std::string without_path(const Status& status) const {
    if (status.ok()) return "nothing";
    std::string message = status.error().message;
    for (size_t at = 0; (at = message.find(path_)) != std::string::npos;) {
      message.replace(at, path_.size(), "FILE");
    }
    return message;
  }

  TempFolder folder_;
  std::string path_ = folder_.path("c.toml");
  Config config_;
};

TEST_F(ConfigTest, ReserveLargerThanTheDiskIsRefused) {
  const std::string data = "data = \"" + folder_.path("not/there/yet") + "\"\n";
  const auto wrong_reserve = [&](const std::string& reserve) {
    EXPECT_EQ(wrong(data + "disk_reserve = \"" + reserve + "\"\n"), "nothing")
        << "the store can still be served";
    return without_path(ckptd::check_disk_reserve(config_));
  };
  EXPECT_THAT(
      wrong_reserve("1000000GiB"),
      testing::AllOf(HasSubstr("FILE:2: disk_reserve 976.6 TiB: no snapshot could be saved"),
                     HasSubstr("the file system of ")));
  EXPECT_EQ(wrong_reserve("1MiB"), "nothing");
}

TEST_F(ConfigTest, ReadsEveryKey) {
  const Status loaded = load(
      "data = \"/d\"\nlisten = \"unix:/s\"\nhttp = \"[::1]:0\"\nio = \"pwritev\"\n"
      "io_shape = \"16x1MiB\"\n"
      "arena = \"1GiB\"\nsession_arena = \"256MiB\"\nsession_arena_max = \"512MiB\"\n"
      "user_arena_max = \"640MiB\"\nwarm_pool = \"768MiB\"\nsegment = \"64MiB\"\n"
      "disk_reserve = \"1GiB\"\nsnapshot_deadline = \"90s\"\n"
      "scrub_rate = \"128MiB\"\nscrub_interval = \"0s\"\n"
      "allow_uids = [1000, 1001]\nworkers = 3\nalarms = \"refuse\"\ncodec = \"zstd\"\n"
      "log_level = \"warn\"\nlog_format = \"json\"\n");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ASSERT_TRUE(ckptd::validate(config_).ok());
  EXPECT_EQ(config_.listen, "/s");
  EXPECT_EQ(config_.io_shape, (ckptd::IoShape{.depth = 16, .bytes = 1u << 20}));
  EXPECT_EQ(config_.arena_bytes, 1ull << 30);
  EXPECT_EQ(config_.session_arena_max_bytes, 512ull << 20);
  EXPECT_EQ(config_.user_arena_max_bytes, 640ull << 20);
  EXPECT_EQ(config_.warm_pool_bytes, 768ull << 20);
  EXPECT_EQ(config_.snapshot_deadline, std::chrono::seconds(90));
  EXPECT_EQ(config_.scrub_bytes_per_second, 128ull << 20);
  EXPECT_EQ(config_.scrub_interval.count(), 0);
  EXPECT_EQ(config_.allow_uids, (std::vector<uid_t>{1000, 1001}));
  EXPECT_EQ(config_.workers, 3u);
  EXPECT_EQ(config_.alarms, "refuse");
  EXPECT_EQ(config_.codec, ckptd::CodecChoice::kZstd);
  EXPECT_EQ(config_.log_format, "json");
}

TEST_F(ConfigTest, WrongTypeErrorNamesLineAndKey) {
  for (const char* line :
       {"arena = 5", "arena = \"5 bananas\"", "workers = -1", "io = 3", "io_shape = \"fast\"",
        "io_shape = 32", "allow_uids = [\"root\"]", "snapshot_deadline = \"10\"",
        "warm_pool = true", "data = ", "scrub_rate = 5", "scrub_rate = \"1KiB\"",
        "scrub_rate = \"fast\"", "scrub_interval = \"5ms\"", "scrub_interval = \"-1s\"",
        "scrub_interval = \"soon\"", "scrub_interval = 7", "codec = \"gzip\"", "[arena]"}) {
    const std::string message = unreadable(std::string("\n") + line + "\n");
    EXPECT_THAT(message, HasSubstr("FILE:2: ")) << line;
    std::string_view key = line;
    if (key.starts_with('[')) key = "arena";
    key = key.substr(0, key.find(' '));
    if (key != "data") {  // that file is not even TOML
      EXPECT_THAT(message, HasSubstr(key));
    }
  }
}

TEST_F(ConfigTest, WrongValueErrorNamesLineAndKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"io = \"magic\"", "io magic: should be uring or pwritev"},
      {"io = \"\"", "io: should be uring or pwritev"},
      {"alarms = \"loud\"", "alarms loud: should be off, warn or refuse"},
      {"log_level = \"WARN\"", "log_level WARN: should be debug, info, warn or error"},
      {"log_format = \"xml\"", "log_format xml: should be text or json"},
      {"segment = \"5MiB\"", "segment 5.0 MiB: should be at least 16MiB and a multiple of 4KiB"},
      {"segment = \"16777217\"",
       "segment 16.0 MiB: should be at least 16MiB and a multiple of 4KiB"},
      {"snapshot_deadline = \"999ms\"", "snapshot_deadline 999 ms: should be at least 1s"},
      {"http = \"9464\"", "http 9464: should be HOST:PORT, such as 127.0.0.1:9464"},
      {"http = \"h:65536\"", "http h:65536: should be HOST:PORT, such as 127.0.0.1:9464"},
      {"http = \"256.1.1.1:80\"", "http 256.1.1.1:80: HOST should be an address or a host name"},
      {"http = \"[::g]:80\"", "http [::g]:80: HOST should be an address or a host name"},
      {"http = \"1:2:80\"", "http 1:2:80: HOST should be an address or a host name"},
      {"listen = \"unix:\"", "listen: the path of a socket has 1 to 4079 bytes"},
      {"listen = \"/" + std::string(107, 's') + "\"",
       "listen /" + std::string(107, 's') +
           ": in a path of more than 107 bytes the socket's own name has at most 82"},
      {"arena = \"1KiB\"", "arena 1.0 KiB: a session needs at least 256.0 KiB"},
      {"session_arena = \"1KiB\"", "session_arena 1.0 KiB: a session needs at least 256.0 KiB"},
      {"session_arena_max = \"0\"", "session_arena_max 0 B: a session needs at least 256.0 KiB"},
      {"user_arena_max = \"0\"", "user_arena_max 0 B: a session needs at least 256.0 KiB"},
  };
  for (const auto& [line, said] : cases) {
    EXPECT_EQ(wrong("data = \"/d\"\n\n" + line + "\n"), "FILE:3: " + said);
  }
  EXPECT_EQ(wrong("\ndata = \"\"\n"), "FILE:2: data: should name a directory");
  const std::string deep = "/" + std::string(100, 'd');
  EXPECT_EQ(wrong("data = \"" + deep + "\"\n"), "nothing") << "any length of a path will do";
  EXPECT_THAT(wrong("data = \"/" + std::string(5000, 'd') + "\"\n"),
              EndsWith("the path of a socket has 1 to 4079 bytes"));
  EXPECT_EQ(wrong("data = \"" + deep + "\"\nlisten = \"/" + std::string(106, 's') + "\"\n"),
            "nothing");
  for (const char* good : {"localhost:0", "node-7.rack:9464", "0.0.0.0:80", "[::]:80",
                           "[fe80::1%eth0]:80", "127.1:80"}) {
    EXPECT_EQ(wrong(std::string("data = \"/d\"\nhttp = \"") + good + "\"\n"), "nothing") << good;
  }
  EXPECT_EQ(wrong("arena = \"64MiB\"\n"), "no data directory: pass --data DIR");
  for (const char* key : {"arena", "warm_pool"}) {
    EXPECT_THAT(wrong(fmt::format("data = \"/d\"\n{} = \"1024TiB\"\n", key)),
                MatchesRegex(fmt::format(
                    "FILE:2: {} 1.0 PiB: more than the memory of this machine \\(.*\\)", key)));
  }
}

TEST_F(ConfigTest, RemovedSettingErrorGivesAdvice) {
  const std::string codec =
      "codec auto was removed: use none, or zstd where the disk is slower than about 1 GB/s";
  EXPECT_EQ(unreadable("\ncodec = \"auto\"\n"), "FILE:2: codec: " + codec);
  EXPECT_EQ(without_path(ckptd::set_config(config_, "codec", "--codec", "auto")),
            "--codec: " + codec);
  EXPECT_EQ(unreadable("data = \"/d\"\nrecode_after = \"0s\"\n"),
            "FILE:2: recode_after: it was removed and nothing replaces it: delete this line");
}

// The message has the line of one key, and the name and line of the other: either can be changed.
TEST_F(ConfigTest, ContradictionErrorNamesBothKeys) {
  EXPECT_EQ(wrong("data = \"/d\"\nsession_arena_max = \"4MiB\"\nsession_arena = \"8MiB\"\n"),
            "FILE:3: session_arena 8.0 MiB: more than session_arena_max 4.0 MiB (FILE:2)");
  EXPECT_EQ(wrong("data = \"/d\"\narena = \"64MiB\"\nsession_arena = \"65MiB\"\n"),
            "FILE:3: session_arena 65.0 MiB: more than arena 64.0 MiB (FILE:2)");
  EXPECT_EQ(wrong("data = \"/d\"\nuser_arena_max = \"4MiB\"\nsession_arena = \"8MiB\"\n"),
            "FILE:3: session_arena 8.0 MiB: more than user_arena_max 4.0 MiB (FILE:2)");
  EXPECT_EQ(wrong("data = \"/d\"\nsession_arena = \"1TiB\"\n"),
            "FILE:2: session_arena 1.0 TiB: more than arena 2.0 GiB (the default)");
}

TEST_F(ConfigTest, DefaultsAdaptToExplicitValues) {
  EXPECT_EQ(wrong("data = \"/d\"\narena = \"64MiB\"\n"), "nothing");
  EXPECT_EQ(config_.session_arena_bytes, 64u << 20);
  EXPECT_EQ(config_.warm_pool_bytes, 64u << 20);
  EXPECT_EQ(wrong("data = \"/d\"\narena = \"64MiB\"\nsession_arena_max = \"4MiB\"\n"), "nothing");
  EXPECT_EQ(config_.session_arena_bytes, 4u << 20);
  EXPECT_EQ(wrong("data = \"/d\"\nsession_arena = \"8MiB\"\n"), "nothing");
  EXPECT_EQ(config_.warm_pool_bytes, 8u << 20);
}

// With one trainer user beside the daemon's own, that user may have the whole arena.
TEST_F(ConfigTest, SeveralUsersLimitDefaultUserArena) {
  const std::string arena = "data = \"/d\"\narena = \"64MiB\"\n";
  const std::string own = std::to_string(::geteuid());
  EXPECT_EQ(wrong(arena + "allow_uids = [0, " + own + ", 54321, 54321]\n"), "nothing");
  EXPECT_EQ(config_.user_arena_max_bytes, 64u << 20);
  EXPECT_EQ(wrong(arena + "allow_uids = [54321, 54322]\n"), "nothing");
  EXPECT_EQ(config_.user_arena_max_bytes, 48u << 20);
  EXPECT_EQ(wrong(arena + "user_arena_max = \"8MiB\"\nallow_uids = [54321, 54322]\n"), "nothing");
  EXPECT_EQ(config_.user_arena_max_bytes, 8u << 20);
  EXPECT_EQ(config_.session_arena_bytes, 8u << 20);
}

TEST_F(ConfigTest, ErrorNamesFlagThatOverridesFile) {
  ASSERT_TRUE(load("data = \"/d\"\nio = \"magic\"\nsession_arena = \"1GiB\"\n").ok());
  ASSERT_TRUE(ckptd::set_config(config_, "io", "CKPTD_IO", "wand").ok());
  EXPECT_EQ(without_path(ckptd::validate(config_)), "CKPTD_IO wand: should be uring or pwritev");
  ASSERT_TRUE(ckptd::set_config(config_, "io", "--io", "uring").ok());
  ASSERT_TRUE(ckptd::set_config(config_, "arena", "--arena", "64MiB").ok());
  EXPECT_EQ(without_path(ckptd::validate(config_)),
            "FILE:3: session_arena 1.0 GiB: more than --arena 64.0 MiB");
  EXPECT_THAT(without_path(ckptd::set_config(config_, "arena", "--arena", "5 bananas")),
              HasSubstr("--arena: '5 bananas' is not a size"));
  EXPECT_EQ(config_.arena_bytes, 64u << 20) << "a value that is none changes nothing";
}

// Configuration text may reach a terminal through an error message.
TEST_F(ConfigTest, ErrorEscapesControlBytes) {
  EXPECT_EQ(wrong("data = \"/d\"\nio = \"\\u001b[31m\\n\\u0000\"\n"),
            "FILE:2: io \\x1b[31m\\n\\x00: should be uring or pwritev");
  EXPECT_THAT(unreadable("\"\\u001b[31m\" = 1\n"), HasSubstr("FILE:1: unknown key \\x1b[31m;"));
  EXPECT_EQ(unreadable("codec = \"\\u001b\"\n"), "FILE:1: codec: codec \\x1b: none, zstd or delta");
  const std::string endless =
      wrong("data = \"/d\"\nhttp = \"" + std::string(100'000, 'x') + "\"\n");
  EXPECT_LT(endless.size(), 300u);
  EXPECT_THAT(endless, EndsWith("...: should be HOST:PORT, such as 127.0.0.1:9464"));
  EXPECT_LT(unreadable("arena = \"" + std::string(100'000, 'x') + "\"\n").size(), 1000u);
  EXPECT_LT(unreadable(std::string(100'000, 'x') + " = 1\n").size(), 1000u);
}

}  // namespace
}  // namespace ckpt::test
