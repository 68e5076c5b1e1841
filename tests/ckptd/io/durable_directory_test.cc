// The path to the store on a real file system. The entries that survive a power loss are computed
// from the order of the syncs.
#include "ckptd/io/durable_directory.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "tests/ckptd/io/disk_fixture.h"

namespace ckptd {
namespace {

namespace fs = std::filesystem;

using ckpt::ErrorCode;
using ckpt::Status;
using testing::HasSubstr;

class DurableDirectoryTest : public testing::Test {
 protected:
  // Syncs for real, and records the entries of the directory as durable. The process dies before
  // the `stop_at`-th sync.
  SyncDirectory recording(size_t stop_at = SIZE_MAX) {
    return [this, stop_at, count = size_t{0}](const std::string& path) mutable -> Status {
      if (count++ == stop_at) return ckpt::make_error(ErrorCode::kIo, "{}: stopped", path);
      CKPT_TRY(sync_directory_at(path));
      for (const auto& entry : fs::directory_iterator(fs::canonical(path))) {
        durable_.insert(entry.path());
      }
      return {};
    };
  }
  // Every directory from the test's own down to this one is durable.
  void expect_durable(fs::path path) {
    for (path = fs::canonical(path); path != root_; path = path.parent_path()) {
      EXPECT_TRUE(durable_.contains(path)) << path;
    }
  }

  ckpt::test::TempFolder folder_;
  fs::path root_ = fs::canonical(folder_.root());
  std::set<fs::path> durable_;
};

TEST_F(DurableDirectoryTest, EveryDirectoryOnThePathIsDurable) {
  for (const char* path : {"a", "b/", "c/d/e", "./f/./g/", "c/x/../y"}) {
    ASSERT_TRUE(make_durable_directory(root_ / path, recording()).ok()) << path;
    ASSERT_TRUE(fs::is_directory(root_ / path)) << path;
    expect_durable(root_ / path);
  }
}

TEST_F(DurableDirectoryTest, RelativePathStartsAtCurrentDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  const Status made = make_durable_directory("h/i", recording());
  fs::current_path(before);
  ASSERT_TRUE(made.ok()) << made.error().message;
  expect_durable(root_ / "h/i");
}

// The next start finds part of the path, and cannot know whether that part is durable.
TEST_F(DurableDirectoryTest, NextStartSyncsDirectoriesOfInterruptedStart) {
  for (size_t stop_at = 0; stop_at < 4; ++stop_at) {
    const fs::path top = root_ / std::to_string(stop_at);
    EXPECT_THAT(make_durable_directory(top / "x/y", recording(stop_at)).error().message,
                HasSubstr("stopped"));
    ASSERT_TRUE(make_durable_directory(top / "x/y", recording()).ok());
    expect_durable(top / "x/y");
  }
}

TEST_F(DurableDirectoryTest, SyncsTheTargetOfSymbolicLink) {
  fs::create_directory(root_ / "disk");
  fs::create_directory_symlink(root_ / "disk", root_ / "link");
  ASSERT_TRUE(make_durable_directory(root_ / "link/store", recording()).ok());
  expect_durable(root_ / "disk/store");
}

TEST_F(DurableDirectoryTest, ErrorNamesThePathThatFailed) {
  std::ofstream(root_ / "file") << "x";
  EXPECT_THAT(make_durable_directory(root_ / "file").error().message,
              HasSubstr("file: not a directory"));
  EXPECT_THAT(make_durable_directory(root_ / "file/store").error().message,
              testing::AllOf(HasSubstr("file/store"), HasSubstr("Not a directory")));
  fs::create_symlink(root_ / "nowhere", root_ / "dangling");
  EXPECT_FALSE(make_durable_directory(root_ / "dangling").ok());
}

// ckptd's own user may be unable to read the directories above its store, as under /var/lib.
TEST_F(DurableDirectoryTest, ExistingStoreNeedsNoReadableParent) {
  ASSERT_TRUE(make_durable_directory(root_ / "closed/store").ok());
  const SyncDirectory closed = [&](const std::string& path) -> Status {
    if (path != root_ / "closed") return sync_directory_at(path);
    return ckpt::make_error(ErrorCode::kPermissionDenied, "{}: closed", path);
  };
  EXPECT_TRUE(make_durable_directory(root_ / "closed/store", closed).ok());
  EXPECT_THAT(make_durable_directory(root_ / "closed/new", closed).error().message,
              HasSubstr("closed: closed"));
}

fs::perms mode_of(const fs::path& path) { return fs::status(path).permissions(); }

TEST_F(DurableDirectoryTest, CreatedDirectoriesArePrivateExceptSocketPath) {
  const mode_t before = ::umask(0);
  ASSERT_TRUE(make_durable_directory(root_ / "a/b").ok());
  ASSERT_TRUE(make_durable_directory(root_ / "c/d/", sync_directory_at, root_ / "c/d/s").ok());
  ASSERT_TRUE(make_durable_directory(root_ / "e/f", sync_directory_at, root_ / "e/./s").ok());
  ::umask(0077);
  ASSERT_TRUE(make_durable_directory(root_ / "g", sync_directory_at, root_ / "g/s").ok());
  ::umask(before);
  for (const char* closed : {"a", "a/b", "e/f"}) {
    EXPECT_EQ(mode_of(root_ / closed), fs::perms{0700}) << closed;
  }
  for (const char* passed : {"c", "c/d", "e", "g"}) {
    EXPECT_EQ(mode_of(root_ / passed), fs::perms{0711}) << passed;
  }
}

TEST_F(DurableDirectoryTest, ClosesExistingDirectoriesToOtherUsers) {
  fs::create_directories(root_ / "open");
  fs::create_directories(root_ / "group");
  ASSERT_EQ(::chmod((root_ / "open").c_str(), 0755), 0);
  ASSERT_EQ(::chmod((root_ / "group").c_str(), 0750), 0);
  for (const char* name : {"open", "group", "none"}) close_to_others(root_ / name);
  EXPECT_EQ(mode_of(root_ / "open"), fs::perms{0700});
  EXPECT_EQ(mode_of(root_ / "group"), fs::perms{0700});
  EXPECT_FALSE(fs::exists(root_ / "none"));
}

}  // namespace
}  // namespace ckptd
