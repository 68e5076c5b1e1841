#include "client/ctl/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace ckptctl {
namespace {

ckpt::Error os_error(const std::string& path, const char* what) {
  const ckpt::ErrorCode code =
      errno == ENOSPC ? ckpt::ErrorCode::kResourceExhausted : ckpt::ErrorCode::kIo;
  return ckpt::make_error(code, "{}: {}: {}", path, what, std::strerror(errno));
}

}  // namespace

NewFile::NewFile(std::string folder, std::string name, std::string temporary,
                 ckpt::base::UniqueFd fd)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      temporary_(std::move(temporary)),
      fd_(std::move(fd)) {}

NewFile::NewFile(NewFile&& other) noexcept
    : folder_(std::move(other.folder_)),
      name_(std::move(other.name_)),
      temporary_(std::exchange(other.temporary_, "")),
      fd_(std::move(other.fd_)) {}

NewFile::~NewFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

ckpt::Result<NewFile> NewFile::create(const std::string& folder, const std::string& name,
                                      uint64_t bytes) {
  std::string temporary = folder + "/." + name + ".XXXXXX";
  ckpt::base::UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.valid()) return os_error(folder + "/" + name, "create");
  NewFile file(folder, name, temporary, std::move(fd));
  // Readable like any other file; mkostemp makes it private.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(file.fd_.get(), 0666 & ~mask) != 0) return os_error(temporary, "chmod");
  // Out of space now rather than after an hour; not every file system can tell.
  if (bytes > 0 && ::posix_fallocate(file.fd_.get(), 0, static_cast<off_t>(bytes)) == ENOSPC) {
    errno = ENOSPC;
    return os_error(folder + "/" + name, "allocate");
  }
  return file;
}

ckpt::Status NewFile::write(uint64_t offset, ckpt::ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      return os_error(folder_ + "/" + name_, "write");
    }
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return ckpt::ok_status();
}

ckpt::Status NewFile::commit() {
  const std::string path = folder_ + "/" + name_;
  if (::fsync(fd_.get()) != 0) return os_error(path, "sync");
  if (::rename(temporary_.c_str(), path.c_str()) != 0) return os_error(path, "rename");
  temporary_.clear();
  const ckpt::base::UniqueFd folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid() || ::fsync(folder.get()) != 0) return os_error(folder_, "sync");
  return ckpt::ok_status();
}

namespace {

// A device, a pipe, a link: it stays what it is.
ckpt::Status write_through(const std::string& path, const std::string& text) {
  const ckpt::base::UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.valid()) return os_error(path, "open");
  for (size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(fd.get(), text.data() + at, text.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return os_error(path, "write");
    at += static_cast<size_t>(written);
  }
  return {};
}

}  // namespace

ckpt::Status write_text_file(const std::string& path, const std::string& text) {
  if (path.empty()) {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "'': not the name of a file");
  }
  std::error_code none;
  const auto type = std::filesystem::symlink_status(path, none).type();
  const bool replaceable =
      type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found;
  if (!replaceable) return write_through(path, text);
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  CKPT_ASSIGN(NewFile file, NewFile::create(folder, name, text.size()));
  CKPT_TRY(file.write(0, ckpt::as_bytes(text)));
  return file.commit();
}

}  // namespace ckptctl
