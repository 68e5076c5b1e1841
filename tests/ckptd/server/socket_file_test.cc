// The file of a unix socket in folders that other users can write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "ckptd/server/socket_watch.h"
#include "ckptd/server/unix_socket.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

namespace fs = std::filesystem;

mode_t mode_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

TEST(SocketFile, AllUsersMayWrite) {
  const ckpt::test::TempFolder folder;
  const auto file = UnixSocketFile::bind(folder.path("s"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(mode_of(folder.path("s")), 0666);
}

// Another user replaces the new socket by a link.
TEST(SocketFile, LinkInPlaceOfSocketIsNotFollowed) {
  const ckpt::test::TempFolder folder;
  const std::string path = folder.path("s");
  const std::string secret = folder.path("secret");
  std::ofstream(secret) << "x";
  ASSERT_EQ(::chmod(secret.c_str(), 0600), 0);
  std::atomic<bool> stop = false;
  std::thread attacker([&] {
    const std::string link = folder.path("link");
    while (!stop) {
      (void)::symlink(secret.c_str(), link.c_str());
      (void)::rename(link.c_str(), path.c_str());
      (void)::unlink(path.c_str());
    }
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < end && mode_of(secret) == 0600) {
    (void)UnixSocketFile::bind(path);
  }
  stop = true;
  attacker.join();
  EXPECT_EQ(mode_of(secret), 0600);
}

TEST(SocketFile, FoldersThatAGroupCanWriteAreReported) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder to a group";
  const ckpt::test::TempFolder folder;
  const std::string shared = fs::canonical(folder.path()) / "shared";
  ASSERT_TRUE(fs::create_directory(shared));
  const std::string path = shared + "/s";
  const auto reported = [&](gid_t group, mode_t mode) {
    EXPECT_EQ(::chown(shared.c_str(), 0, group), 0);
    EXPECT_EQ(::chmod(shared.c_str(), mode), 0);
    return replaceable_directory(path, 0) == shared;
  };
  const bool above = !replaceable_directory(fs::path(shared).parent_path(), 0).empty();
  if (above) GTEST_SKIP() << "the folder of this test can be replaced itself";
  EXPECT_TRUE(reported(54'321, 0775));
  EXPECT_FALSE(reported(54'321, 0755));
  EXPECT_FALSE(reported(54'321, 01775));
  EXPECT_FALSE(reported(0, 0775));
  // A path without a folder is in the current directory.
  ASSERT_TRUE(reported(54'321, 0775));
  const fs::path before = fs::current_path();
  fs::current_path(shared);
  EXPECT_EQ(replaceable_directory("s", 0), shared);
  fs::current_path(before);
}

// The socket file is there, but cannot accept: the fault is reported, and the socket is remade.
TEST(SocketFile, SocketThatCannotListenIsRecreated) {
  const ckpt::test::TempFolder folder;
  auto file = UnixSocketFile::bind(folder.path("s"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  SocketWatch watch(**file, folder.path("s"), "no new client can connect");
  const auto now = SocketWatch::Clock::now();
  EXPECT_FALSE(watch.poll(now));
  watch.failed("epoll: No space left on device");
  EXPECT_THAT(watch.fault(), testing::HasSubstr("No space left on device"));
  EXPECT_TRUE(watch.poll(now + std::chrono::seconds(1)));
  EXPECT_EQ(watch.fault(), "");
  EXPECT_TRUE((*file)->listen().ok());
}

// A daemon that lost its path to another daemon keeps its existing connections.
TEST(SocketFile, RenewLeavesPathToAnotherDaemon) {
  const ckpt::test::TempFolder folder;
  const std::string path = folder.path("s");
  const auto ours = UnixSocketFile::bind(path);
  ASSERT_TRUE(ours.ok()) << ours.error().message;
  fs::remove(path);
  fs::remove(path + ".lock");
  const auto other = UnixSocketFile::bind(path);
  ASSERT_TRUE(other.ok()) << other.error().message;
  const auto renewed = (*ours)->renew();
  ASSERT_FALSE(renewed.ok());
  EXPECT_EQ(renewed.error().code, ckpt::ErrorCode::kAlreadyExists);
  EXPECT_THAT(renewed.error().message, testing::HasSubstr("another daemon listens on it"));
  EXPECT_TRUE((*other)->intact());
}

}  // namespace
}  // namespace ckptd
