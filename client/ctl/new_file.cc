#include "client/ctl/new_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "client/ctl/unlink_on_signal.h"

namespace ckptctl {
namespace {

// The limit for file sizes (ulimit -f) stops a write like a full disk.
bool is_no_room(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

std::string_view remedy_of(int error) {
  switch (error) {
    case ENOSPC:
      return "; free space on that file system, or name a path on another one";
    case EDQUOT:
      return "; free space of your quota there, or name a path on another file system";
    case EFBIG:
      return "; raise the limit for file sizes (ulimit -f)";
    default:
      return "";
  }
}

ckpt::Error os_error(const std::string& path, const char* what) {
  const int error = errno;
  const ckpt::ErrorCode code =
      is_no_room(error) ? ckpt::ErrorCode::kResourceExhausted : ckpt::ErrorCode::kIo;
  return ckpt::make_error(code, "{}: {}: {}{}", path, what, std::strerror(error), remedy_of(error));
}

// Hidden names are ".NAME.ckptd-part.ABCDEF".
constexpr std::string_view kMark = ".ckptd-part.";
constexpr std::string_view kRandom = "XXXXXX";
constexpr int kTries = 100;

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// For mkostemp.
std::string hidden_template(const std::string& path) {
  const size_t slash = path.rfind('/');
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  // Leaves room for the additions, even if the name has the maximum length.
  constexpr size_t kNameBytesMax = 200;
  std::string out = path.substr(0, begin) + "." + path.substr(begin, kNameBytesMax);
  return out.append(kMark).append(kRandom);
}

// False if a sweep has locked or removed the file first. File systems without locks give true.
bool lock_hidden(int fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  struct stat about {};
  return ::fstat(fd, &about) == 0 && about.st_nlink > 0;
}

// True if a file of folder `a` can be renamed into folder `b`.
bool same_mount(const std::string& a, const std::string& b) {
  if (a == b) return true;
  struct statx first {};
  struct statx second {};
  if (::statx(AT_FDCWD, a.c_str(), 0, STATX_MNT_ID, &first) != 0) return false;
  if (::statx(AT_FDCWD, b.c_str(), 0, STATX_MNT_ID, &second) != 0) return false;
  return first.stx_dev_major == second.stx_dev_major &&
         first.stx_dev_minor == second.stx_dev_minor && first.stx_mnt_id == second.stx_mnt_id;
}

// Removes a hidden file that no NewFile has locked. Holds the lock: a process that creates the same
// name finds out that the file was removed (lock_hidden). Opens read-only because of files of other
// users; local file systems lock such files, too.
ckpt::Status remove_leftover(const std::string& path) {
  constexpr int kFlags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  ckpt::base::UniqueFd fd(::open(path.c_str(), O_RDWR | kFlags));
  if (!fd.valid() && errno == EACCES) fd.reset(::open(path.c_str(), O_RDONLY | kFlags));
  struct stat about {};
  if (!fd.valid() || ::fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return {};
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return os_error(path, "unlink");
  return {};
}

}  // namespace

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      base_path_(std::move(other.base_path_)),
      hidden_(std::exchange(other.hidden_, "")),
      fd_(std::move(other.fd_)) {}

NewFile::~NewFile() { remove_hidden(); }

void NewFile::remove_hidden() {
  if (hidden_.empty()) return;
  ::unlink(hidden_.c_str());
  keep_on_signal(hidden_);
  hidden_.clear();
}

ckpt::Status NewFile::open_hidden() {
  for (int i = 0; i < kTries; ++i) {
    std::string hidden = hidden_template(base_path_);
    ckpt::base::UniqueFd fd(::mkostemp(hidden.data(), O_CLOEXEC));
    if (!fd.valid()) return os_error(path_, "create");
    if (!lock_hidden(fd.get())) continue;
    fd_ = std::move(fd);
    hidden_ = std::move(hidden);
    unlink_on_signal(hidden_);
    return {};
  }
  return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: hidden files are removed as they are made",
                          path_);
}

ckpt::Result<NewFile> NewFile::create(const std::string& folder, const std::string& name,
                                      uint64_t bytes, Way way) {
  const std::string path = folder + "/" + name;
  const bool in_folder = same_mount(folder, folder_of(path));
  NewFile file(path, in_folder ? folder + "/" + name.substr(name.rfind('/') + 1) : path);
  if (way == Way::kUnnamed) {
    file.fd_ = ckpt::base::UniqueFd(
        ::open(folder_of(file.base_path_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  }
  // If O_TMPFILE fails for any other reason, mkostemp fails with the same error.
  if (!file.fd_.valid()) CKPT_TRY(file.open_hidden());
  // mkostemp made it private; give it the usual permissions.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(file.fd_.get(), 0666 & ~mask) != 0) return os_error(file.path_, "chmod");
  // Fails now if space is short, rather than after an hour; not every file system can tell.
  const int allocated =
      bytes > 0 ? ::posix_fallocate(file.fd_.get(), 0, static_cast<off_t>(bytes)) : 0;
  if (is_no_room(allocated)) {
    errno = allocated;
    return os_error(file.path_, "allocate");
  }
  return file;
}

ckpt::Status NewFile::write(uint64_t offset, ckpt::ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      return os_error(path_, "write");
    }
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return ckpt::ok_status();
}

ckpt::Status NewFile::sync() {
  if (::fsync(fd_.get()) != 0) return os_error(path_, "sync");
  return {};
}

// A link cannot replace a file, so the unnamed file gets a hidden name first.
ckpt::Status NewFile::hide() {
  if (!hidden_.empty()) return {};
  // Lock before the file has a name, so that no sweep ever finds it unlocked.
  ::flock(fd_.get(), LOCK_EX | LOCK_NB);
  const std::string self = "/proc/self/fd/" + std::to_string(fd_.get());
  for (int i = 0; i < kTries; ++i) {
    std::string hidden = hidden_template(base_path_);
    // mkostemp finds a free name; if another process takes it first, try again.
    const ckpt::base::UniqueFd named(::mkostemp(hidden.data(), O_CLOEXEC));
    if (!named.valid()) return os_error(path_, "create");
    unlink_on_signal(hidden);
    hidden_ = hidden;
    if (::unlink(hidden.c_str()) != 0 && errno != ENOENT) return os_error(hidden, "unlink");
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, hidden.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      return {};
    }
    const int error = errno;
    keep_on_signal(hidden_);
    hidden_.clear();
    errno = error;
    if (error != EEXIST) return os_error(path_, "link");
  }
  return os_error(path_, "link");
}

ckpt::Status NewFile::rename() {
  if (::rename(hidden_.c_str(), path_.c_str()) != 0) return os_error(path_, "rename");
  keep_on_signal(hidden_);
  hidden_.clear();
  return {};
}

ckpt::Status NewFile::commit() {
  CKPT_TRY(sync());
  CKPT_TRY(hide());
  CKPT_TRY(rename());
  return sync_folder(folder_of(path_));
}

ckpt::Status sync_folder(const std::string& folder) {
  const ckpt::base::UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0) return os_error(folder, "sync");
  return {};
}

ckpt::Status remove_leftovers(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (is_unfinished(entry->path().filename().string())) found.push_back(entry->path().string());
  }
  if (error == std::errc::no_such_file_or_directory) return {};
  if (error) {
    return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: {}", folder, error.message());
  }
  for (const std::string& path : found) CKPT_TRY(remove_leftover(path));
  return {};
}

bool is_unfinished(std::string_view name) {
  const size_t mark = name.rfind(kMark);
  return name.starts_with('.') && mark != std::string_view::npos &&
         name.size() == mark + kMark.size() + kRandom.size();
}

namespace {

// A device, a pipe or a link is written in place, not replaced.
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
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  CKPT_ASSIGN(NewFile file, NewFile::create(folder_of(path), name, text.size()));
  CKPT_TRY(file.write(0, ckpt::as_bytes(text)));
  return file.commit();
}

}  // namespace ckptctl
