#include "ckptd/server/unix_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace ckptd {

namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::base::UniqueFd;

#ifndef SO_PEERPIDFD
constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD of Linux 6.5, not in Debian 12's headers
#else
constexpr int kPeerPidfd = SO_PEERPIDFD;
#endif

ckpt::Error system_error(const std::string& what) {
  return make_error(ErrorCode::kIo, "{}: {}", what, std::strerror(errno));
}

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return make_error(ErrorCode::kInvalidArgument, "socket {}: a path has 1 to {} bytes", path,
                      sizeof(address.sun_path) - 1);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

const sockaddr* as_sockaddr(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// A socket file nobody listens on any more is removed.
ckpt::Status remove_stale(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) {
    return make_error(ErrorCode::kAlreadyExists, "socket {}: there is a file that is no socket",
                      path);
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return system_error("socket");
  if (::connect(probe.get(), as_sockaddr(address), sizeof(address)) == 0 || errno == EAGAIN) {
    return make_error(ErrorCode::kAlreadyExists, "socket {}: another daemon listens on it", path);
  }
  if (errno != ECONNREFUSED) return system_error("socket " + path);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error("socket " + path);
  return {};
}

}  // namespace

Result<std::unique_ptr<UnixSocketFile>> UnixSocketFile::bind(const std::string& path) {
  CKPT_ASSIGN(const sockaddr_un address, address_of(path));
  std::unique_ptr<UnixSocketFile> file(new UnixSocketFile(path));
  const std::string lock_path = path + ".lock";
  file->lock_.reset(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file->lock_.valid()) return system_error("socket lock " + lock_path);
  if (::flock(file->lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return make_error(ErrorCode::kAlreadyExists, "socket {}: another daemon listens on it", path);
  }
  CKPT_TRY(remove_stale(path, address));
  file->socket_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!file->socket_.valid()) return system_error("socket");
  if (::bind(file->socket_.get(), as_sockaddr(address), sizeof(address)) != 0) {
    return system_error("socket " + path);
  }
  file->bound_ = true;
  // Who may use it is decided by the allow-list; the file lets everybody ask.
  if (::chmod(path.c_str(), 0666) != 0) return system_error("socket " + path);
  return file;
}

UnixSocketFile::~UnixSocketFile() { remove(); }

Result<UniqueFd> UnixSocketFile::listen() {
  if (::listen(socket_.get(), 128) != 0) return system_error("socket " + path_);
  return std::move(socket_);
}

void UnixSocketFile::remove() {
  if (std::exchange(bound_, false)) ::unlink(path_.c_str());
}

std::string closed_directory(const std::string& path, uid_t uid) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path directory = fs::canonical(fs::path(path).parent_path(), error);
  fs::path above;
  for (const fs::path& name : directory) {
    above /= name;
    struct stat info {};
    if (::stat(above.c_str(), &info) != 0) break;
    const bool passes = (info.st_mode & (S_IXGRP | S_IXOTH)) != 0 ||
                        (info.st_uid == uid && (info.st_mode & S_IXUSR) != 0);
    if (!passes) return above.string();
  }
  return {};
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

Result<Received> receive(int socket, ckpt::MutableByteView buffer) {
  iovec vector{.iov_base = buffer.data(), .iov_len = buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(8 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  Received received;
  if (got < 0) {
    if (errno != EAGAIN && errno != EWOULDBLOCK) return system_error("receive");
    received.would_block = true;
    return received;
  }
  received.bytes = static_cast<size_t>(got);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      // Every descriptor is owned, the ones nobody asked for are closed.
      received.fd.reset(ckpt::base::load<int>(
          reinterpret_cast<const std::byte*>(CMSG_DATA(header)) + i * sizeof(int)));
    }
  }
  return received;
}

Result<std::optional<size_t>> send(int socket, ckpt::ByteView bytes, int fd) {
  iovec vector{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    ckpt::base::store(reinterpret_cast<std::byte*>(CMSG_DATA(header)), fd);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return std::optional<size_t>(static_cast<size_t>(sent));
  if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<size_t>();
  return system_error("send");
}

}  // namespace ckptd
