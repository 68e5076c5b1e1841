#include "ckptd/io/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "formats/base/open_files.h"
#include "formats/base/printable.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::base::UniqueFd;

namespace {

constexpr size_t kHolderBytesMax = 96;

std::string host_name() {
  utsname name{};
  return ::uname(&name) == 0 ? name.nodename : "";
}

// 0: locked. EWOULDBLOCK: another process holds the lock.
int lock_now(int fd) {
  int result = 0;
  do {
    result = ::flock(fd, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result == 0 || errno == EWOULDBLOCK) return result == 0 ? 0 : EWOULDBLOCK;
  const int unsupported = errno;
  // Network file systems may support only fcntl() locks.
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(fd, F_OFD_SETLK, &whole) == 0) return 0;
  return errno == EAGAIN || errno == EACCES ? EWOULDBLOCK : unsupported;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Whether a process of this host holds a lock on the file, by the locks that the kernel lists for
// each of its descriptors.
enum class Holds : uint8_t { kYes, kNo, kUnknown };

Holds holds_lock(std::string_view pid, int fd) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return Holds::kUnknown;
  const std::string process = fmt::format("/proc/{}", pid);
  std::error_code error;
  std::filesystem::directory_iterator opened(process + "/fd", error);
  for (; !error && opened != std::filesystem::directory_iterator(); opened.increment(error)) {
    struct stat info {};
    if (::stat(opened->path().c_str(), &info) != 0 || !same_file(info, file)) continue;
    std::ifstream locks(process + "/fdinfo/" + opened->path().filename().string());
    if (!locks) return Holds::kUnknown;
    for (std::string line; std::getline(locks, line);) {
      if (line.starts_with("lock:")) return Holds::kYes;
    }
  }
  const bool ended = error == std::errc::no_such_file_or_directory || error.value() == ESRCH;
  return !error || ended ? Holds::kNo : Holds::kUnknown;
}

// " by process 4711 on host a". The file may name an earlier holder, so the name is checked.
std::string holder_of(int fd) {
  char text[kHolderBytesMax];
  const ssize_t read = ::pread(fd, text, sizeof text, 0);
  const std::string_view line(text, static_cast<size_t>(std::max<ssize_t>(read, 0)));
  const size_t space = line.find(' ');
  const std::string_view pid = line.substr(0, space);
  const bool number = !pid.empty() && pid.find_first_not_of("0123456789") == std::string_view::npos;
  if (space == std::string_view::npos || !number) return {};
  const std::string_view host = line.substr(space + 1, line.find('\n') - space - 1);
  const std::string name =
      fmt::format("process {} on host {}", pid, ckpt::base::printable(host, 64));
  const Holds holds = host == host_name() ? holds_lock(pid, fd) : Holds::kUnknown;
  if (holds == Holds::kYes) return " by " + name;
  if (holds == Holds::kNo) return "; the file names " + name + ", which holds no lock here";
  return fmt::format("; the file names {}, which cannot be checked from here", name);
}

// The remedy for a lock file that cannot be opened or created; empty: none is known.
std::string remedy_for(int error, const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  struct stat info {};
  switch (error) {
    case ENOENT:
      return fmt::format("; make the folder {}", folder);
    case EROFS:
      return "; its file system is mounted read-only";
    case EACCES:
      if (::stat(path.c_str(), &info) == 0) return refused_file_remedy(info.st_uid, ::geteuid());
      return fmt::format("; let user {} write in the folder {}, or choose another one", ::geteuid(),
                         folder);
    default:
      return ckpt::base::open_files_hint(error);
  }
}

// On a full disk the file may lack a name, but the daemon still starts. The name of an earlier
// holder must not stay.
void write_holder(int fd) {
  const std::string line = fmt::format("{} {}\n", ::getpid(), host_name());
  const bool written =
      ::pwrite(fd, line.data(), line.size(), 0) == static_cast<ssize_t>(line.size());
  (void)!::ftruncate(fd, written ? static_cast<off_t>(line.size()) : 0);
}

}  // namespace

std::string refused_file_remedy(uid_t owner, uid_t self) {
  if (owner == self) return "; give its owner, who runs this process, the right to write it";
  return fmt::format(
      "; it belongs to user {}, this process to user {}: run it as that user, or chown the files",
      owner, self);
}

std::function<bool()> LockFile::retry_for_two_seconds() {
  using Clock = std::chrono::steady_clock;
  return [end = Clock::now() + std::chrono::seconds(2)] {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return true;
  };
}

Result<LockFile> LockFile::take(const std::string& path, std::string_view what,
                                std::string_view taken, const std::function<bool()>& try_again) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!fd.valid()) {
    const int error = errno;
    return make_error(ErrorCode::kIo, "{}: lock {}: {}{}", what, path, std::strerror(error),
                      remedy_for(error, path));
  }
  int error = lock_now(fd.get());
  while (error == EWOULDBLOCK && try_again()) error = lock_now(fd.get());
  if (error == EWOULDBLOCK) {
    return make_error(ErrorCode::kAlreadyExists, "{}: {}: {} is locked{}", what, taken, path,
                      holder_of(fd.get()));
  }
  if (error != 0) {
    return make_error(ErrorCode::kUnavailable,
                      "{}: its file system has no locks ({}: {}), which keep two daemons apart; "
                      "enable them (NFS: "
                      "run a lock daemon, Lustre: mount with -o flock) or use a local folder",
                      what, path, std::strerror(error));
  }
  write_holder(fd.get());
  return LockFile(std::move(fd));
}

bool LockFile::is_at(const std::string& path) const {
  struct stat ours {};
  struct stat there {};
  return ::fstat(fd_.get(), &ours) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         same_file(ours, there);
}

}  // namespace ckptd
