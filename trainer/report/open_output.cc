#include "trainer/report/open_output.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace moetrain::report {

ckpt::Result<ckpt::base::UniqueFd> open_output(const std::string& path, std::string_view name) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY | O_CLOEXEC;
  ckpt::base::UniqueFd fd(::open(path.c_str(), kFlags | O_NONBLOCK, 0666));
  // No other flag that F_SETFL changes is set. From here on writes wait for room.
  if (fd.valid() && ::fcntl(fd.get(), F_SETFL, 0) == 0) return fd;
  const int error = errno;
  struct stat status {};
  const bool unread_pipe =
      error == ENXIO && ::stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
  return ckpt::make_error(
      ckpt::ErrorCode::kIo, "{}: cannot write: {}", name.empty() ? path : name,
      unread_pipe ? "no program reads this pipe; start its reader first" : std::strerror(error));
}

}  // namespace moetrain::report
