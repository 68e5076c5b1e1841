#include "client/src/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "client/src/daemon_identity.h"
#include "formats/base/unix_address.h"

namespace ckpt::lib {
namespace {

constexpr size_t kReceiveBytes = 64 << 10;
// That came before the messages they belong to were whole: a read brings one.
constexpr size_t kDescriptorsMax = 64;

bool is_socket(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) != 0 || S_ISSOCK(info.st_mode);
}

// The remedy for a failed connect; empty if errno says it all.
std::string remedy_for(const std::string& path, int error) {
  switch (error) {
    case ENOENT:
      return fmt::format(
          "; start ckptd there (ckptd --data DIR --listen unix:{}), or name the "
          "socket of one that runs (--socket or CKPTD_SOCKET)",
          path);
    case ECONNREFUSED:
      return is_socket(path)
                 ? "; the ckptd that made the socket has ended: start it again"
                 : "; it is not a socket: name the one that ckptd listens on (--listen)";
    case EACCES:
    case EPERM:
      return fmt::format("; user {} may not open it: see that the folders above let others through",
                         ::geteuid());
    default:
      return {};
  }
}

Error connect_error(const std::string& path, int error) {
  ErrorCode code = ErrorCode::kUnavailable;
  if (error == EACCES || error == EPERM) code = ErrorCode::kPermissionDenied;
  if (error == ECONNREFUSED && !is_socket(path)) code = ErrorCode::kInvalidArgument;
  return make_error(code, "socket {}: {}{}", path, std::strerror(error), remedy_for(path, error));
}

Error gone(const char* what, int error) {
  return make_error(ErrorCode::kUnavailable, "connection to the daemon lost: {}: {}", what,
                    std::strerror(error));
}

}  // namespace

std::string socket_path(std::string_view address) {
  constexpr std::string_view kPrefix = "unix:";
  if (address.starts_with(kPrefix)) address.remove_prefix(kPrefix.size());
  return std::string(address);
}

Result<Connection> Connection::connect(const std::string& path) {
  Result<base::UnixAddress> address = base::UnixAddress::of(path);
  if (!address.ok()) {
    Error error = std::move(address).error();
    // A daemon that is yet to make its folder is waited for, as one that is yet to bind.
    if (error.code == ErrorCode::kNotFound) error.code = ErrorCode::kUnavailable;
    return error;
  }
  base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return connect_error(path, errno);
  // A unix socket connects at once or not at all; EAGAIN is a full backlog, try again later.
  if (::connect(socket.get(), address->get(), address->size()) != 0) {
    return connect_error(path, errno);
  }
  CKPT_TRY(check_daemon(socket.get(), path));
  return Connection(std::move(socket));
}

Connection::Connection(base::UniqueFd socket) : socket_(std::move(socket)) {}

Status Connection::send(const fb::MessageT& message, int fd) {
  // What a trainer asked for is what makes a message large: its mistake, not a lost connection.
  Result<std::vector<std::byte>> frame = wire::try_encode(message);
  if (!frame.ok()) return Error{ErrorCode::kInvalidArgument, frame.error().message};
  unsent_.push_back({std::move(frame).value(), 0, fd});
  return flush();
}

Result<size_t> Connection::send_some(const Outgoing& outgoing) const {
  iovec piece{const_cast<std::byte*>(outgoing.frame.data()) + outgoing.sent,
              outgoing.frame.size() - outgoing.sent};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (outgoing.fd >= 0 && outgoing.sent == 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &outgoing.fd, sizeof(int));
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno != EINTR) return gone("send", errno);
  }
}

Status Connection::flush() {
  while (!unsent_.empty()) {
    Outgoing& outgoing = unsent_.front();
    CKPT_ASSIGN(const size_t sent, send_some(outgoing));
    if (sent == 0) return ok_status();
    outgoing.sent += sent;
    if (outgoing.sent == outgoing.frame.size()) unsent_.pop_front();
  }
  return ok_status();
}

// Bytes received, 0 if none are there yet.
Result<size_t> Connection::receive_some() {
  buffer_.resize(kReceiveBytes);
  iovec piece{buffer_.data(), buffer_.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t received = 0;
  do {
    received = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    return gone("receive", errno);
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    received_fds_.emplace_back(fd);
  }
  if (received_fds_.size() > kDescriptorsMax) {
    return make_error(ErrorCode::kCorrupt, "the daemon sent {} descriptors that belong to nothing",
                      received_fds_.size());
  }
  if (received == 0) {
    return make_error(ErrorCode::kUnavailable, "connection to the daemon lost: it was closed");
  }
  reader_.append(ByteView(buffer_).first(static_cast<size_t>(received)));
  return static_cast<size_t>(received);
}

Result<std::optional<fb::MessageT>> Connection::receive() {
  for (;;) {
    CKPT_ASSIGN(std::optional<fb::MessageT> message, reader_.next());
    if (message) return message;
    CKPT_ASSIGN(const size_t received, receive_some());
    if (received == 0) return std::optional<fb::MessageT>();
  }
}

base::UniqueFd Connection::take_fd() {
  if (received_fds_.empty()) return {};
  base::UniqueFd fd = std::move(received_fds_.front());
  received_fds_.pop_front();
  return fd;
}

void Connection::wait(const Deadline& deadline) const {
  pollfd entry{socket_.get(), static_cast<short>(POLLIN | (has_unsent() ? POLLOUT : 0)), 0};
  // Interrupted or not, the caller looks at the socket again.
  (void)::poll(&entry, 1, deadline.poll_timeout_ms());
}

}  // namespace ckpt::lib
