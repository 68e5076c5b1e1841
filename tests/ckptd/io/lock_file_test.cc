// The lock that keeps two daemons apart, on a real file system.
#include "ckptd/io/lock_file.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <optional>

#include "tests/ckptd/io/disk_fixture.h"
#include "tests/support/signals.h"

namespace ckptd {
namespace {

using testing::HasSubstr;

class LockFileTest : public testing::Test {
 protected:
  ckpt::Result<LockFile> take(const std::function<bool()>& try_again) {
    return LockFile::take(path_, "data directory /d", "another ckptd is running on it", try_again);
  }

  ckpt::test::TempFolder folder_;
  const std::string path_ = folder_.root() + "/lock";
};

// A daemon that was killed keeps its lock until the kernel has freed its memory.
TEST_F(LockFileTest, IsTakenOnceHolderReleases) {
  std::optional<LockFile> holder = take({}).value();
  int tries = 0;
  const auto next = take([&] {
    if (++tries == 3) holder.reset();
    return true;
  });
  EXPECT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(tries, 3);
}

TEST_F(LockFileTest, NamesTheHolder) {
  const LockFile holder = take({}).value();
  const auto next = take([] { return false; });
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, ckpt::ErrorCode::kAlreadyExists);
  EXPECT_THAT(next.error().message, HasSubstr(fmt::format("is locked by process {}", ::getpid())));
}

// A child process that holds the lock until it is killed.
class HoldingChild {
 public:
  explicit HoldingChild(const std::function<ckpt::Result<LockFile>()>& take) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const auto lock = take();
      (void)!::write(ready[1], lock.ok() ? "y" : "n", 1);
      for (;;) ::pause();
    }
    char held = 0;
    EXPECT_EQ(::read(ready[0], &held, 1), 1);
    EXPECT_EQ(held, 'y');
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~HoldingChild() {
    EXPECT_TRUE(ckpt::test::send_signal(pid_, SIGKILL));
    ::waitpid(pid_, nullptr, 0);
  }
  HoldingChild(const HoldingChild&) = delete;
  HoldingChild& operator=(const HoldingChild&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

TEST_F(LockFileTest, NamesOnlyAProcessThatHoldsTheLock) {
  const auto take_once = [this] { return take([] { return false; }); };
  const HoldingChild child(take_once);
  EXPECT_THAT(take_once().error().message,
              HasSubstr(fmt::format("/lock is locked by process {} on host ", child.pid())));
  std::string pid;
  std::string host;
  std::ifstream(path_) >> pid >> host;
  // This process is alive and has the file open, but does not hold the lock.
  const std::ofstream stale(path_);
  std::ofstream(path_) << ::getpid() << ' ' << host << '\n';
  EXPECT_THAT(
      take_once().error().message,
      testing::EndsWith(fmt::format("/lock is locked; the file names process {} on host {}, "
                                    "which holds no lock here",
                                    ::getpid(), host)));
  std::ofstream(path_) << "7 elsewhere\n";
  EXPECT_THAT(take_once().error().message,
              testing::EndsWith("/lock is locked; the file names process 7 on host elsewhere, "
                                "which cannot be checked from here"));
}

TEST_F(LockFileTest, MissingFolderErrorNamesTheRemedy) {
  const auto lock_in = [&](const std::string& folder) {
    return LockFile::take(folder + "/lock", "socket /s", "another daemon listens on it", {})
        .error()
        .message;
  };
  const std::string missing = folder_.root() + "/missing";
  EXPECT_EQ(lock_in(missing), fmt::format("socket /s: lock {0}/lock: No such file or directory; "
                                          "make the folder {0}",
                                          missing));
}

TEST(RefusedFileRemedy, NamesBothUsers) {
  EXPECT_EQ(refused_file_remedy(0, 1000),
            "; it belongs to user 0, this process to user 1000: run it as that user, or chown the "
            "files");
  EXPECT_EQ(refused_file_remedy(1000, 1000),
            "; give its owner, who runs this process, the right to write it");
}

}  // namespace
}  // namespace ckptd
