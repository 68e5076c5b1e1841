#include "formats/base/open_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

namespace ckpt::base {

std::optional<rlimit> open_files_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
  return limit;
}

std::optional<rlimit> allow_open_files(rlim_t wanted) {
  const auto before = open_files_limit();
  if (!before || before->rlim_cur >= wanted) return before;
  rlimit raised = *before;
  raised.rlim_cur = std::min(wanted, raised.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised : before;
}

std::string open_files_hint(int error) {
  if (error == ENFILE) return " (the machine's limit of open files: raise fs.file-max)";
  const auto limit = error == EMFILE ? open_files_limit() : std::nullopt;
  if (!limit) return {};
  return fmt::format(
      " ({} may have {} files open: raise its limit with ulimit -n, or LimitNOFILE= in a systemd "
      "unit)",
      program_invocation_short_name, limit->rlim_cur);
}

}  // namespace ckpt::base
