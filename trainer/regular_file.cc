#include "trainer/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "formats/base/unique_fd.h"

namespace moetrain {

namespace {

ckpt::Error cannot_read(std::string_view why) {
  return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "{}", why);
}

}  // namespace

ckpt::Status append_regular_file(const std::string& path, uint64_t bytes_max,
                                 std::vector<uint8_t>& bytes) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const ckpt::base::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return cannot_read(std::strerror(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return cannot_read(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return cannot_read("not a regular file");
  constexpr size_t kReadBytes = 1u << 20;
  size_t end = bytes.size();
  for (;;) {
    bytes.resize(end + kReadBytes);
    const ssize_t got = ::read(file.get(), bytes.data() + end, kReadBytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot_read(std::strerror(errno));
    end += static_cast<size_t>(got);
    if (end > bytes_max) return cannot_read(fmt::format("over {} bytes in all", bytes_max));
    if (got == 0) break;
  }
  bytes.resize(end);
  return {};
}

}  // namespace moetrain
