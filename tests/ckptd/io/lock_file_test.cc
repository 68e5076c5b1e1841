// The lock that keeps two daemons apart, on a real file system.
#include "ckptd/io/lock_file.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <optional>

#include "tests/ckptd/io/disk_fixture.h"

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
TEST_F(LockFileTest, IsTakenOnceItsHolderIsGone) {
  std::optional<LockFile> holder = take({}).value();
  int tries = 0;
  const auto next = take([&] {
    if (++tries == 3) holder.reset();
    return true;
  });
  EXPECT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(tries, 3);
}

TEST_F(LockFileTest, NamesTheHolderThatStays) {
  const LockFile holder = take({}).value();
  const auto next = take([] { return false; });
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, ckpt::ErrorCode::kAlreadyExists);
  EXPECT_THAT(next.error().message, HasSubstr(fmt::format("is locked by process {}", ::getpid())));
}

TEST_F(LockFileTest, SaysWhatToDoWhereItCannotBeMade) {
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
