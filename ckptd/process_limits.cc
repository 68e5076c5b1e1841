#include "ckptd/process_limits.h"

#include <sys/resource.h>

#include "formats/base/open_files.h"
#include "formats/base/parse.h"

namespace ckptd {

ckpt::Status check_file_size_limit(uint64_t segment_bytes) {
  rlimit size{};
  const bool limited = ::getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur != RLIM_INFINITY;
  if (!limited || size.rlim_cur >= segment_bytes) return {};
  return ckpt::make_error(
      ckpt::ErrorCode::kResourceExhausted,
      "files may have at most {} here (ulimit -f), and a segment has {}: raise the limit "
      "(ulimit -f unlimited; LimitFSIZE=infinity in a systemd unit), or set a smaller `segment` in "
      "the configuration file",
      ckpt::base::format_size(size.rlim_cur), ckpt::base::format_size(segment_bytes));
}

ckpt::Status check_open_files_limit() {
  constexpr rlim_t kOpenFilesMin = 48;
  const auto limit = ckpt::base::open_files_limit();
  if (!limit || limit->rlim_cur >= kOpenFilesMin) return {};
  return ckpt::make_error(
      ckpt::ErrorCode::kResourceExhausted,
      "{} files may be open here (ulimit -n), and ckptd needs at least {}: raise the limit "
      "(ulimit -n; LimitNOFILE= in a systemd unit)",
      limit->rlim_cur, kOpenFilesMin);
}

}  // namespace ckptd
