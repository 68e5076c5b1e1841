#include "client/ctl/open_files.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace ckptctl {
namespace {

// Runs in a child process, because a hard limit cannot be raised again.
int in_child_with(rlimit limit, const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setrlimit(RLIMIT_NOFILE, &limit) == 0 && holds() ? 0 : 1);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(OpenFiles, RaisesSoftLimitAsNeeded) {
  const auto raised = [] {
    rlimit now{};
    return allow_open_files("out", 200).ok() && ::getrlimit(RLIMIT_NOFILE, &now) == 0 &&
           now.rlim_cur > 200 && now.rlim_max == 1000;
  };
  EXPECT_EQ(in_child_with({64, 1000}, raised), 0);
}

TEST(OpenFiles, NamesHardLimitThatIsTooLow) {
  const auto refused = [] {
    const auto status = allow_open_files("out", 1200);
    const std::string says = status.ok() ? "" : status.error().message;
    return says.find("out: its 1200 files need 1264 open files, but at most 100") == 0;
  };
  EXPECT_EQ(in_child_with({64, 100}, refused), 0);
}

}  // namespace
}  // namespace ckptctl
