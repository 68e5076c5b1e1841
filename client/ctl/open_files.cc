#include "client/ctl/open_files.h"

#include "formats/base/open_files.h"

namespace ckptctl {

ckpt::Status allow_open_files(const std::string& folder, size_t files) {
  // Other descriptors of this process: standard streams, the session with the daemon, its arena.
  constexpr size_t kOthers = 64;
  const rlim_t needed = files + kOthers;
  const auto limit = ckpt::base::allow_open_files(needed);
  if (!limit || limit->rlim_cur >= needed) return {};
  return ckpt::make_error(ckpt::ErrorCode::kResourceExhausted,
                          "{}: its {} files need {} open files, but at most {} are allowed; raise "
                          "the hard limit (ulimit -n {})",
                          folder, files, needed, limit->rlim_max, needed);
}

}  // namespace ckptctl
