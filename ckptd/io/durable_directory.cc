#include "ckptd/io/durable_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "ckptd/io/posix_files.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

namespace fs = std::filesystem;

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Status;

Status sync_directory_at(const std::string& path) {
  const ckpt::base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0) {
    return errno_error(errno, fmt::format("{}: sync of the directory", path));
  }
  return {};
}

Status make_durable_directory(const std::string& path, const SyncDirectory& sync) {
  std::error_code error;
  fs::path lowest = fs::absolute(path, error);  // then "/" is above all, and there
  if (!error && !lowest.has_filename()) lowest = lowest.parent_path();  // "store/"
  std::vector<fs::path> missing;                                        // the highest last
  while (!error && !fs::exists(lowest, error) && !error) {
    missing.push_back(lowest);
    lowest = lowest.parent_path();
  }
  if (!error) lowest = fs::canonical(lowest, error);  // behind links and dots
  if (error) return make_error(ErrorCode::kIo, "data directory {}: {}", path, error.message());

  Status there = sync(lowest.parent_path());
  if (!there.ok() && there.error().code != ErrorCode::kPermissionDenied) return there;
  for (; !missing.empty(); missing.pop_back()) {
    const fs::path& next = missing.back();
    if (::mkdir(next.c_str(), 0777) != 0 && errno != EEXIST) {
      return errno_error(errno, fmt::format("data directory {}: mkdir {}", path, next.string()));
    }
    CKPT_TRY(sync(next.parent_path()));
  }
  if (!fs::is_directory(path, error)) {
    return make_error(ErrorCode::kIo, "data directory {}: not a directory", path);
  }
  return {};
}

}  // namespace ckptd
