#include "client/ctl/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "formats/base/crc32c.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;

int64_t change_time_ns(const struct stat& about) {
  return int64_t{about.st_mtim.tv_sec} * 1'000'000'000 + about.st_mtim.tv_nsec;
}

}  // namespace

Result<InputFile> InputFile::open(const std::string& folder, const std::string& name) {
  InputFile input;
  input.path_ = folder + "/" + name;
  // O_NONBLOCK: opening a FIFO must not block.
  input.fd_ = ckpt::base::UniqueFd(::open(input.path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!input.fd_.valid() && errno == ENOENT) {
    return make_error(ErrorCode::kNotFound, "{}: there is no such file", input.path_);
  }
  struct stat about {};
  if (!input.fd_.valid() || ::fstat(input.fd_.get(), &about) != 0) {
    return make_error(ErrorCode::kIo, "{}: {}", input.path_, std::strerror(errno));
  }
  if (!S_ISREG(about.st_mode)) {
    return make_error(ErrorCode::kFailedPrecondition, "{}: not a regular file", input.path_);
  }
  input.bytes_ = static_cast<uint64_t>(about.st_size);
  input.changed_ns_ = change_time_ns(about);
  return input;
}

Status InputFile::read(uint64_t offset, ckpt::MutableByteView into) const {
  while (!into.empty()) {
    const ssize_t got = ::pread(fd_.get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return make_error(ErrorCode::kIo, "{}: {}", path_, std::strerror(errno));
    if (got == 0) return make_error(ErrorCode::kIo, "{}: it ends at byte {}", path_, offset);
    offset += static_cast<uint64_t>(got);
    into = into.subspan(static_cast<size_t>(got));
  }
  return {};
}

Result<std::string> InputFile::read_text(uint64_t bytes_max) const {
  if (bytes_ > bytes_max) {
    return make_error(ErrorCode::kFailedPrecondition, "{}: {} bytes; the limit is {}", path_,
                      bytes_, bytes_max);
  }
  std::string text(bytes_, '\0');
  CKPT_TRY(read(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

Result<std::vector<std::byte>> InputFile::read_head(uint64_t bytes) const {
  std::vector<std::byte> head(std::min(bytes, bytes_));
  CKPT_TRY(read(0, head));
  return head;
}

Result<uint32_t> InputFile::crc32c(const EachPart& each) const {
  constexpr uint64_t kPartBytes = 8 << 20;
  std::vector<std::byte> buffer(std::min(bytes_, kPartBytes));
  uint32_t crc = 0;
  for (uint64_t at = 0; at < bytes_;) {
    const uint64_t length = std::min<uint64_t>(bytes_ - at, buffer.size());
    const auto part = ckpt::MutableByteView(buffer).first(length);
    CKPT_TRY(read(at, part));
    crc = ckpt::base::crc32c(part, crc);
    at += length;
    if (each) CKPT_TRY(each(length));
  }
  return crc;
}

Status InputFile::check_unchanged() const {
  struct stat about {};
  if (::fstat(fd_.get(), &about) != 0) {
    return make_error(ErrorCode::kIo, "{}: {}", path_, std::strerror(errno));
  }
  if (static_cast<uint64_t>(about.st_size) == bytes_ && change_time_ns(about) == changed_ns_) {
    return {};
  }
  return make_error(ErrorCode::kFailedPrecondition,
                    "{}: it was written while it was read; import it again", path_);
}

}  // namespace ckptctl
