#include "ckptd/server/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "formats/base/unix_address.h"

namespace ckptd {

namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::base::UniqueFd;
using ckpt::base::UnixAddress;

#ifndef SO_PEERPIDFD
constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD of Linux 6.5, not in Debian 12's headers
#else
constexpr int kPeerPidfd = SO_PEERPIDFD;
#endif

ckpt::Error system_error(const std::string& what) {
  return make_error(ErrorCode::kIo, "{}: {}", what, std::strerror(errno));
}

// Removes a socket file without a listener.
ckpt::Status remove_stale(const std::string& path, const UnixAddress& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) {
    return make_error(ErrorCode::kAlreadyExists, "socket {}: there is a file that is no socket",
                      path);
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return system_error("socket");
  if (::connect(probe.get(), address.get(), address.size()) == 0 || errno == EAGAIN) {
    return make_error(ErrorCode::kAlreadyExists, "socket {}: another daemon listens on it", path);
  }
  if (errno != ECONNREFUSED) return system_error("socket " + path);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error("socket " + path);
  return {};
}

// The first directory on the path to `path`, from the root on, that `matches`; empty: none.
template <typename Matches>
std::string first_directory(const std::string& path, const Matches& matches) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path directory = fs::canonical(fs::absolute(path, error).parent_path(), error);
  fs::path above;
  for (const fs::path& name : directory) {
    above /= name;
    struct stat info {};
    if (::stat(above.c_str(), &info) != 0) break;
    if (matches(info)) return above.string();
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<UnixSocketFile>> UnixSocketFile::bind(const std::string& path) {
  std::unique_ptr<UnixSocketFile> file(new UnixSocketFile(path));
  CKPT_TRY(file->make(LockFile::retry_for_two_seconds()));
  return file;
}

ckpt::Status UnixSocketFile::make(const std::function<bool()>& try_lock_again) {
  CKPT_ASSIGN(const UnixAddress address, UnixAddress::of(path_));
  const std::string lock_path = path_ + ".lock";
  if (!lock_.is_at(lock_path)) {
    CKPT_ASSIGN(lock_, LockFile::take(lock_path, "socket " + path_, "another daemon listens on it",
                                      try_lock_again));
  }
  CKPT_TRY(remove_stale(path_, address));
  socket_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_.valid()) return system_error("socket");
  if (::bind(socket_.get(), address.get(), address.size()) != 0) {
    return system_error("socket " + path_);
  }
  return open_to_all();
}

// The file's mode lets every user connect; the allow-list decides who is served. In a folder that
// others can write, the path may name another file now. So the file is checked and changed
// through one descriptor, and only if it is a socket without another name.
ckpt::Status UnixSocketFile::open_to_all() {
  const UniqueFd file(::open(path_.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) return system_error("socket " + path_);
  if (!S_ISSOCK(info.st_mode) || info.st_nlink != 1) {
    return make_error(ErrorCode::kIo,
                      "socket {}: its file was replaced while it was made; use a folder that only "
                      "root or ckptd's user can write",
                      path_);
  }
  if (::chmod(fmt::format("/proc/self/fd/{}", file.get()).c_str(), 0666) != 0) {
    return system_error("socket " + path_);
  }
  device_ = info.st_dev;
  inode_ = info.st_ino;
  bound_ = true;
  return {};
}

UnixSocketFile::~UnixSocketFile() { remove(); }

Result<UniqueFd> UnixSocketFile::listen() {
  if (::listen(socket_.get(), 128) != 0) return system_error("socket " + path_);
  return std::move(socket_);
}

bool UnixSocketFile::intact() const {
  struct stat info {};
  return bound_ && ::lstat(path_.c_str(), &info) == 0 && S_ISSOCK(info.st_mode) &&
         info.st_dev == device_ && info.st_ino == inode_;
}

ckpt::Status UnixSocketFile::renew() {
  bound_ = false;
  return make([] { return false; });
}

void UnixSocketFile::remove() {
  if (intact()) ::unlink(path_.c_str());  // another daemon's socket must stay
  bound_ = false;
}

std::string bound_path(int socket) {
  sockaddr_un address{};
  socklen_t length = sizeof(address);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      length <= offsetof(sockaddr_un, sun_path) || address.sun_path[0] == '\0') {
    return {};
  }
  return {address.sun_path, ::strnlen(address.sun_path, sizeof(address.sun_path))};
}

std::string closed_directory(const std::string& path, uid_t uid) {
  return first_directory(path, [uid](const struct stat& info) {
    const bool passes = (info.st_mode & (S_IXGRP | S_IXOTH)) != 0 ||
                        (info.st_uid == uid && (info.st_mode & S_IXUSR) != 0);
    return !passes;
  });
}

std::string replaceable_directory(const std::string& path, uid_t own) {
  return first_directory(path, [own](const struct stat& info) {
    // Members of root's group count as root.
    const bool others =
        (info.st_mode & S_IWOTH) != 0 || ((info.st_mode & S_IWGRP) != 0 && info.st_gid != 0);
    const bool open = others && (info.st_mode & S_ISVTX) == 0;
    return open || (info.st_uid != 0 && info.st_uid != own);
  });
}

Result<Peer> peer_of(int socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return system_error("SO_PEERCRED");
  }
  Peer peer{.uid = credentials.uid, .pid = credentials.pid, .pidfd = {}};
  int pidfd = -1;
  length = sizeof(pidfd);
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &pidfd, &length) != 0) {
    pidfd = static_cast<int>(::syscall(SYS_pidfd_open, credentials.pid, 0));
  }
  peer.pidfd.reset(pidfd);
  return peer;
}

}  // namespace ckptd
