#include "ckptd/io/durable_directory.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
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

namespace {

bool is_above(const fs::path& directory, const std::string& passage) {
  if (passage.empty()) return false;
  std::error_code error;
  const fs::path below = fs::absolute(passage, error).lexically_normal();
  const fs::path above = directory.lexically_normal();
  const auto [left, rest] = std::mismatch(above.begin(), above.end(), below.begin(), below.end());
  return left == above.end() && rest != below.end();
}

// With exactly this mode, whatever the umask.
Status make_directory(const fs::path& path, mode_t mode) {
  if (::mkdir(path.c_str(), 0700) != 0) {
    if (errno == EEXIST) return {};
    return errno_error(errno, fmt::format("mkdir {}", path.string()));
  }
  if (::chmod(path.c_str(), mode) == 0) return {};
  return errno_error(errno, fmt::format("chmod {}", path.string()));
}

}  // namespace

Status make_durable_directory(const std::string& path, const SyncDirectory& sync,
                              const std::string& passage) {
  std::error_code error;
  fs::path lowest = fs::absolute(path, error);  // then "/" is its topmost parent, and exists
  if (!error && !lowest.has_filename()) lowest = lowest.parent_path();  // "store/"
  std::vector<fs::path> missing;                                        // topmost last
  while (!error && !fs::exists(lowest, error) && !error) {
    missing.push_back(lowest);
    lowest = lowest.parent_path();
  }
  if (!error) lowest = fs::canonical(lowest, error);  // resolves links and dots
  if (error) return make_error(ErrorCode::kIo, "data directory {}: {}", path, error.message());
  const std::string created =
      missing.empty() ? std::string() : missing.front().lexically_normal().string();

  Status there = sync(lowest.parent_path());
  if (!there.ok() && there.error().code != ErrorCode::kPermissionDenied) return there;
  for (; !missing.empty(); missing.pop_back()) {
    const fs::path& next = missing.back();
    const Status made = make_directory(next, is_above(next, passage) ? 0711 : 0700);
    if (!made.ok()) {
      return make_error(made.error().code, "data directory {}: {}", path, made.error().message);
    }
    CKPT_TRY(sync(next.parent_path()));
  }
  if (!fs::is_directory(path, error)) {
    return make_error(ErrorCode::kIo, "data directory {}: not a directory", path);
  }
  // A slip in the path of a store begins a new one: this line shows it.
  if (!created.empty()) spdlog::info("created {}", created);
  return {};
}

void close_to_others(const std::string& path) {
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  const ckpt::base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || (info.st_mode & kOthers) == 0) return;
  if (::fchmod(fd.get(), info.st_mode & 07777 & ~kOthers) != 0) {
    return spdlog::warn("{}: other users may look into it, and it cannot be closed to them: {}",
                        path, std::strerror(errno));
  }
  spdlog::warn("{}: other users could look into it until now (mode {:04o})", path,
               info.st_mode & 07777);
}

}  // namespace ckptd
