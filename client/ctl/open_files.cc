#include "client/ctl/open_files.h"

#include <sys/resource.h>

#include <algorithm>

namespace ckptctl {

ckpt::Status allow_open_files(const std::string& folder, size_t files) {
  // Other descriptors of this process: standard streams, the session with the daemon, its arena.
  constexpr size_t kOthers = 64;
  const rlim_t needed = files + kOthers;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return {};
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  const bool raised = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  if (raised && limit.rlim_cur >= needed) return {};
  return ckpt::make_error(ckpt::ErrorCode::kResourceExhausted,
                          "{}: its {} files need {} open files, but at most {} are allowed; raise "
                          "the hard limit (ulimit -n {})",
                          folder, files, needed, limit.rlim_max, needed);
}

}  // namespace ckptctl
