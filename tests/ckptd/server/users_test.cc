// Access to the real ckptd is decided by the kernel's credentials, not by the client's claim.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ckptd/limits.h"
#include "tests/support/daemon_process.h"
#include "tests/support/raw_client.h"

namespace ckpt::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// ckptd's answer to a control session of this user. Only one thread changes its user: credentials
// are those of the thread that connects.
std::optional<fb::MessageT> hello_as(uid_t uid, const std::string& socket) {
  std::optional<fb::MessageT> answer;
  std::thread([&] {
    if (::syscall(SYS_setresuid, uid, uid, uid) != 0) return;
    RawClient client(socket);
    fb::HelloT hello;
    hello.protocol_version = wire::kProtocolVersion;
    hello.kind = fb::SessionKind::Control;
    client.send(std::move(hello));
    answer = client.next();
  }).join();
  return answer;
}

TEST(Users, OnlyListedUsersMayConnect) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  constexpr uid_t kListed = 54'321;
  constexpr uid_t kStranger = 54'322;
  const TempFolder directory;
  const std::string path = directory.path("ckptd.toml");
  std::ofstream(path) << "allow_uids = [" << kListed << "]\n";
  const DaemonProcess daemon({"--arena", "64MiB", "--config", path});
  ASSERT_EQ(::chmod(daemon.folder().path().c_str(), 0755), 0);
  for (const uid_t uid : {uid_t{0}, kListed}) {
    const auto answer = hello_as(uid, daemon.socket());
    ASSERT_TRUE(answer) << uid;
    EXPECT_EQ(answer->body.type, fb::MessageBody::Welcome) << uid;
  }
  const auto refused = hello_as(kStranger, daemon.socket());
  ASSERT_TRUE(refused);
  ASSERT_EQ(refused->body.type, fb::MessageBody::ErrorReply);
  EXPECT_EQ(refused->body.AsErrorReply()->code, static_cast<int>(ErrorCode::kPermissionDenied));
  EXPECT_THAT(refused->body.AsErrorReply()->message, HasSubstr("user 54322"));
}

TEST(Users, GreedyUserLeavesRoomForOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  constexpr uid_t kGreedy = 54'321;
  constexpr uid_t kOther = 54'322;
  const TempFolder directory;
  const std::string path = directory.path("ckptd.toml");
  std::ofstream(path) << "allow_uids = [" << kGreedy << ", " << kOther << "]\n";
  const DaemonProcess daemon({"--arena", "64MiB", "--config", path});
  ASSERT_EQ(::chmod(daemon.folder().path().c_str(), 0755), 0);
  std::vector<std::unique_ptr<RawClient>> sessions;
  std::optional<fb::MessageT> refused;
  std::thread([&] {
    if (::syscall(SYS_setresuid, kGreedy, kGreedy, kGreedy) != 0) return;
    for (size_t i = 0; i < ckptd::limits::kSessionsPerUserMax; ++i) {
      sessions.push_back(std::make_unique<RawClient>(daemon.socket()));
      sessions.back()->hello_control();
    }
    RawClient one_more(daemon.socket());
    refused = one_more.next();
  }).join();
  ASSERT_TRUE(refused);
  ASSERT_EQ(refused->body.type, fb::MessageBody::ErrorReply);
  EXPECT_THAT(refused->body.AsErrorReply()->message, HasSubstr("sessions of user 54321 already"));
  for (const uid_t uid : {uid_t{0}, kOther}) {
    const auto answer = hello_as(uid, daemon.socket());
    ASSERT_TRUE(answer) << uid;
    EXPECT_EQ(answer->body.type, fb::MessageBody::Welcome) << uid;
  }
  sessions.clear();
  // Once there is room again the daemon has noticed the closed sessions.
  const auto welcome = [&] {
    const auto answer = hello_as(kGreedy, daemon.socket());
    return answer && answer->body.type == fb::MessageBody::Welcome;
  };
  bool again = false;
  for (int i = 0; i < 1000 && !again; ++i) again = welcome();
  EXPECT_TRUE(again);
}

// A refused user who retries without end does not fill the disk with log lines.
TEST(Users, RefusalsAreLoggedAtLimitedRate) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  const DaemonProcess daemon({"--arena", "64MiB"});
  ASSERT_EQ(::chmod(daemon.folder().path().c_str(), 0755), 0);
  constexpr int kTimes = 100;
  for (int i = 0; i < kTimes; ++i) ASSERT_TRUE(hello_as(54'322, daemon.socket()));
  const std::string log = daemon.log();
  size_t said = 0;
  for (size_t at = 0; (at = log.find(" was refused: ", at)) != std::string::npos; ++at) ++said;
  EXPECT_GE(said, 1u);
  // On a slow machine another period may begin.
  EXPECT_LE(said, 4 * ckptd::limits::kWarningsPerPeriodMax);
}

// Everything below the directory that other users could open or list.
std::vector<std::string> open_to_others(const std::filesystem::path& top) {
  std::vector<std::string> open;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(top)) {
    const auto others = std::filesystem::perms::group_all | std::filesystem::perms::others_all;
    const auto mode = entry.symlink_status().permissions();
    if ((mode & others) != std::filesystem::perms::none) open.push_back(entry.path());
  }
  return open;
}

// Names of runs and units are in the catalog, which only the daemon may read.
TEST(Users, StoreIsClosedToOtherUsers) {
  const mode_t before = ::umask(0022);  // as a shell has it
  DaemonProcess daemon({"--arena", "64MiB"});
  EXPECT_THAT(open_to_others(daemon.data()), IsEmpty());
  EXPECT_EQ(std::filesystem::status(daemon.data()).permissions(), std::filesystem::perms{0700});
  const auto socket = std::filesystem::symlink_status(daemon.socket());
  EXPECT_EQ(socket.permissions(), std::filesystem::perms{0666}) << "the allow-list decides";

  // The mode that an earlier version left.
  EXPECT_EQ(daemon.stop(), 0);
  const std::string catalog = daemon.data() + "/catalog";
  ASSERT_EQ(::chmod(catalog.c_str(), 0755), 0);
  daemon.start();
  EXPECT_EQ(std::filesystem::status(catalog).permissions(), std::filesystem::perms{0700});
  EXPECT_THAT(daemon.log(), HasSubstr(catalog + ": other users could look into it until now"));
  ::umask(before);
}

// The default socket is in the data directory, so that directory must let others through.
TEST(Users, ListedUsersReachSocketInDataDirectory) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  constexpr uid_t kListed = 54'321;
  const TempFolder directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 0711), 0);
  const std::string data = directory.path("data");
  const std::string path = directory.path("ckptd.toml");
  std::ofstream(path) << "allow_uids = [" << kListed << "]\n";
  const DaemonProcess daemon(
      {"--arena", "64MiB", "--config", path, "--listen", data + "/ckptd.sock"}, data);
  const auto answer = hello_as(kListed, daemon.socket());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body.type, fb::MessageBody::Welcome);
  EXPECT_EQ(std::filesystem::status(data).permissions(), std::filesystem::perms{0711});
  EXPECT_THAT(daemon.log(), Not(HasSubstr("allow_uids")));
}

// A data directory that existed before keeps its mode.
TEST(Users, LogNamesListedUserWhoCannotReachSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  constexpr uid_t kListed = 54'321;
  constexpr uid_t kOwner = 54'322;
  const TempFolder directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 0711), 0);
  const std::string data = directory.path("data");
  std::filesystem::create_directory(data);
  ASSERT_EQ(::chown(data.c_str(), kOwner, 0), 0);
  ASSERT_EQ(::chmod(data.c_str(), 0700), 0);
  const std::string path = directory.path("ckptd.toml");
  std::ofstream(path) << "allow_uids = [0, " << kListed << ", " << kOwner << "]\n";
  const DaemonProcess daemon(
      {"--arena", "64MiB", "--config", path, "--listen", data + "/ckptd.sock"}, data);
  const std::string closed = std::filesystem::canonical(data).string();
  EXPECT_THAT(daemon.log(), HasSubstr("user 54321 of allow_uids does not get to the socket " +
                                      daemon.socket() + ": " + closed + " is closed to others"));
  EXPECT_THAT(daemon.log(), Not(HasSubstr("user 54322 of allow_uids")));
}

// Clients check who listens. The log warns the operator about the folder before that.
TEST(Users, LogNamesFolderWhereSocketIsReplaceable) {
  const TempFolder directory;
  const auto log_with_mode = [&](mode_t mode) {
    EXPECT_EQ(::chmod(directory.path().c_str(), mode), 0);
    const DaemonProcess daemon({"--arena", "64MiB", "--listen", directory.path("ckptd.sock")});
    return daemon.log();
  };
  EXPECT_THAT(log_with_mode(0777),
              HasSubstr("other users can replace it, as " +
                        std::filesystem::canonical(directory.path()).string()));
  EXPECT_THAT(log_with_mode(01777), Not(HasSubstr("can replace it")));
  EXPECT_THAT(log_with_mode(0755), Not(HasSubstr("can replace it")));
}

}  // namespace
}  // namespace ckpt::test
