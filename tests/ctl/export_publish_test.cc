// ExportFolder::publish() whose calls fail, or that is killed at any of them: the earlier export
// stays, or the folder says that it is unfinished and the next export mends it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/ctl/made_export.h"
#include "tests/support/temp_folder.h"

namespace {

// Number of the last call of fsync, rename and unlink that happens, from 1; 0: all happen.
struct LastCall {
  int left = 0;
  bool only_syncs = false;  // it fails, and other calls are not counted; else the process ends
};
LastCall last_call;
constexpr int kEndedThere = 9;

bool fails_here(bool is_sync) {
  if (last_call.left == 0 || (last_call.only_syncs && !is_sync)) return false;
  if (--last_call.left > 0) return false;
  if (!last_call.only_syncs) ::_exit(kEndedThere);
  errno = EDQUOT;
  return true;
}

}  // namespace

// Replaces libc's functions.
extern "C" int fsync(int fd) {
  return fails_here(true) ? -1 : static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  return fails_here(false)
             ? -1
             : static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
extern "C" int unlink(const char* path) noexcept {
  return fails_here(false) ? -1 : static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

namespace ckptctl {
namespace {

using testing::HasSubstr;

class ExportPublish : public testing::Test {
 protected:
  using Files = std::map<std::string, std::string>;

  Status export_files(const Files& files, LastCall last = {}) {
    CKPT_ASSIGN(MadeExport made, make_export(path_, files, {.step = 1}));
    last_call = last;
    const auto published = made.publish();
    last_call = {};
    return published.ok() ? Status() : Status(published.error());
  }
  // All files but ckptd.json.
  Files there() const {
    Files files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      const std::string name = std::filesystem::relative(entry.path(), path_).string();
      if (!entry.is_regular_file() || name == kManifestName) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      files[name] = {std::istreambuf_iterator<char>(file), {}};
    }
    return files;
  }
  Manifest manifest() const {
    std::ifstream file(path_ + "/" + kManifestName, std::ios::binary);
    auto parsed = parse_manifest(std::string{std::istreambuf_iterator<char>(file), {}});
    EXPECT_TRUE(parsed.ok());
    return parsed.ok() ? std::move(*parsed) : Manifest();
  }
  void start_with(const Files& files) {
    std::filesystem::remove_all(path_);
    ASSERT_TRUE(export_files(files).ok());
  }
  // Exit code of a process that exports and ends at that call.
  int export_until(int call, const Files& files) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(export_files(files, {call, false}).ok() ? 0 : 1);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status);
  }

  ckpt::test::TempFolder folder_;
  std::string path_ = folder_.path("out");
  const Files one_ = {{kModelName, file_of_tensor("a")}};
  const Files several_ = {
      {"m-1.safetensors", file_of_tensor("a")},
      {"part/m-2.safetensors", file_of_tensor("b")},
      {kIndexName, index_of({{"a", "m-1.safetensors"}, {"b", "part/m-2.safetensors"}})}};
};

TEST_F(ExportPublish, AFailedSyncLeavesTheEarlierExport) {
  for (const auto& [before, after] : {std::pair(one_, several_), std::pair(several_, one_)}) {
    const int files_and_manifest = static_cast<int>(after.size()) + 1;
    for (int call = 1; call <= files_and_manifest; ++call) {
      start_with(before);
      const Status failed = export_files(after, {call, true});
      ASSERT_FALSE(failed.ok()) << call;
      EXPECT_THAT(failed.error().message, HasSubstr("Disk quota exceeded"));
      EXPECT_EQ(there(), before) << call;
      EXPECT_TRUE(read_model_folder(path_).ok()) << call;
    }
  }
}

TEST_F(ExportPublish, KillLeavesWholeOrMarkedUnfinishedExport) {
  for (const auto& [before, after] : {std::pair(one_, several_), std::pair(several_, one_)}) {
    int unfinished = 0;
    int exit_code = kEndedThere;
    for (int call = 1; exit_code == kEndedThere; ++call) {
      start_with(before);
      exit_code = export_until(call, after);
      const auto folder = read_model_folder(path_);
      Files left = there();
      std::erase_if(left, [](const auto& file) {
        return is_unfinished(std::filesystem::path(file.first).filename().string());
      });
      if (folder.ok()) {
        EXPECT_TRUE(left == before || left == after) << call;
      } else {
        EXPECT_THAT(folder.error().message, HasSubstr("did not finish; export again"));
        for (const ExportedFile& file : manifest().replaced) {
          EXPECT_EQ(file, description_of(file.name, before.at(file.name)));
        }
        ++unfinished;
      }
      ASSERT_TRUE(export_files(after).ok()) << call;
      EXPECT_EQ(there(), after) << "no hidden files either, after call " << call;
    }
    EXPECT_EQ(exit_code, 0);
    EXPECT_GT(unfinished, 2);
  }
}

}  // namespace
}  // namespace ckptctl
