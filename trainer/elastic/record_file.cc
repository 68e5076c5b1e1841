#include "trainer/elastic/record_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "trainer/report/open_output.h"

namespace moetrain {

ckpt::Status RecordFile::open(const std::string& path) {
  path_ = path;
  CKPT_ASSIGN(fd_, report::open_output(path));
  return {};
}

int RecordFile::write_whole(std::string_view line) {
  for (size_t at = 0; at < line.size();) {
    const ssize_t written = ::write(fd_.get(), line.data() + at, line.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      const off_t end = at > 0 ? ::lseek(fd_.get(), 0, SEEK_CUR) : -1;
      const off_t before = end - static_cast<off_t>(at);
      // A pipe or a device cannot be truncated.
      if (end >= 0 && ::ftruncate(fd_.get(), before) == 0) ::lseek(fd_.get(), before, SEEK_SET);
      return error;
    }
    at += static_cast<size_t>(written);
  }
  return 0;
}

std::string RecordFile::append(std::string_view line) {
  if (!fd_.valid()) return {};
  if (const int error = write_whole(line); error != 0) {
    error_ = error;
    ++lines_lost_;
    if (std::exchange(losing_, true)) return {};
    return fmt::format(
        "cannot write {}: {}; its lines are lost until there is room, training continues", path_,
        std::strerror(error));
  }
  if (!std::exchange(losing_, false)) return {};
  return fmt::format("{} can be written again; {} lines are missing", path_, lines_lost_);
}

std::string RecordFile::loss() const {
  if (lines_lost_ == 0) return {};
  return fmt::format("{}: {} line{} missing: {}", path_, lines_lost_,
                     lines_lost_ == 1 ? " is" : "s are", std::strerror(error_));
}

}  // namespace moetrain
