#include "formats/base/open_files.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace ckpt::base {
namespace {

// Soft limit after allow_open_files(wanted). Runs in a child process: this one keeps its limits.
rlim_t raised_to(rlim_t wanted, rlimit before) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool set = ::setrlimit(RLIMIT_NOFILE, &before) == 0;
    const auto after = allow_open_files(wanted);
    const auto now = open_files_limit();
    const bool verified = set && after && now && after->rlim_cur == now->rlim_cur;
    ::_exit(verified ? static_cast<int>(now->rlim_cur / 10) : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return static_cast<rlim_t>(WEXITSTATUS(status)) * 10;
}

TEST(OpenFilesLimit, IsRaisedUpToHardLimit) {
  EXPECT_EQ(raised_to(200, {.rlim_cur = 100, .rlim_max = 300}), 200u);
  EXPECT_EQ(raised_to(400, {.rlim_cur = 100, .rlim_max = 300}), 300u);
  EXPECT_EQ(raised_to(RLIM_INFINITY, {.rlim_cur = 100, .rlim_max = 300}), 300u);
  EXPECT_EQ(raised_to(50, {.rlim_cur = 100, .rlim_max = 300}), 100u) << "never lowered";
}

TEST(OpenFilesLimit, HintNamesLimitAndRemedy) {
  EXPECT_THAT(open_files_hint(EMFILE),
              testing::ContainsRegex("^ \\(.* may have [0-9]+ files open: raise .*ulimit -n"));
  EXPECT_THAT(open_files_hint(ENFILE), testing::HasSubstr("fs.file-max"));
  EXPECT_EQ(open_files_hint(EIO), "");
}

}  // namespace
}  // namespace ckpt::base
