// The functions of report.h that touch the file system.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "trainer/report/open_output.h"
#include "trainer/report/output_path.h"
#include "trainer/report/report.h"

namespace moetrain::report {

using ckpt::base::UniqueFd;

namespace {

ckpt::Error io_error(const std::string& path, std::string_view what) {
  return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: cannot {}: {}", path, what,
                          std::strerror(errno));
}

ckpt::Status write_all(int fd, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {  // a descriptor that another program made non-blocking
      pollfd room{fd, POLLOUT, 0};
      (void)::poll(&room, 1, -1);
      continue;
    }
    if (written < 0) return io_error(path, "write");
    content.remove_prefix(static_cast<size_t>(written));
  }
  return ckpt::ok_status();
}

// A pipe, a terminal or /dev/null must never be replaced by a file, nor read as one.
bool is_special(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

ckpt::Status write_new(const std::string& path, const std::string& name, std::string_view content) {
  CKPT_ASSIGN(const UniqueFd fd, open_output(path, name));
  return write_all(fd.get(), name, content);
}

}  // namespace

ckpt::Result<Report> read_report(const std::string& path) {
  if (is_special(path)) {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "{}: not a regular file", path);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return ckpt::make_error(ckpt::ErrorCode::kNotFound, "{}: cannot open: {}", path,
                            std::strerror(errno));
  }
  std::ostringstream content;
  content << file.rdbuf();
  if (file.bad()) return io_error(path, "read");
  return parse_report(content.str(), path);
}

ckpt::Status write_file(const std::string& path, std::string_view content) {
  if (const auto fd = descriptor_of(path)) {
    if (*fd == STDOUT_FILENO) std::fflush(stdout);  // text that was printed before
    return write_all(*fd, path, content);
  }
  if (is_special(path)) return write_new(path, path, content);
  const std::string place = end_of_links(path);  // a link stays one, and its file is replaced
  std::error_code none;
  if (std::filesystem::is_symlink(place, none)) {
    errno = ELOOP;
    return io_error(path, "follow its links");
  }
  const std::string partial = fmt::format("{}.partial.{}", place, ::getpid());
  ckpt::Status status = write_new(partial, path, content);
  if (status.ok() && std::rename(partial.c_str(), place.c_str()) != 0) {
    status = io_error(path, "replace");
  }
  if (!status.ok()) ::unlink(partial.c_str());
  return status;
}

ckpt::Result<UniqueFd> check_writable(const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) {
    return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: is a folder", path);
  }
  if (const auto fd = descriptor_of(path)) {
    const int flags = ::fcntl(*fd, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY) return UniqueFd();
    if (flags >= 0) errno = EACCES;
    return io_error(path, "write");
  }
  if (is_special(path)) return open_output(path);
  if (std::filesystem::is_symlink(end_of_links(path), none)) {
    errno = ELOOP;
    return io_error(path, "follow its links");
  }
  const std::string folder = end_of_links(path).parent_path();
  const std::string place = folder.empty() ? "." : folder;
  const std::string what = fmt::format("create it in {}", place);  // may change errno
  if (::access(place.c_str(), W_OK | X_OK) == 0) return UniqueFd();
  return io_error(path, what);
}

}  // namespace moetrain::report
