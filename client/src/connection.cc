#include "client/src/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "client/src/daemon_identity.h"
#include "formats/base/fd_message.h"
#include "formats/base/unix_address.h"

namespace ckpt::lib {
namespace {

constexpr size_t kReceiveBytes = 64 << 10;
// Limit of descriptors received before their messages are complete; a read brings one at most.
constexpr size_t kDescriptorsMax = 64;

bool is_socket(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) != 0 || S_ISSOCK(info.st_mode);
}

// The remedy for a failed connect; empty if errno is clear enough.
std::string remedy_for(const std::string& path, int error) {
  // The text could be a file name, but surely means a network address.
  if (error == ENOENT && base::is_network_address(path)) {
    return "; ckptd serves unix sockets of its own machine alone: name one as unix:PATH (--socket "
           "or CKPTD_SOCKET)";
  }
  switch (error) {
    case ENOENT:
      return fmt::format(
          "; start ckptd there (ckptd --data DIR --listen unix:{}), or name the "
          "socket of one that runs (--socket or CKPTD_SOCKET)",
          path);
    case ECONNREFUSED:
      return is_socket(path)
                 ? "; the ckptd that made the socket has ended: start it again"
                 : "; it is not a socket: name the one that ckptd listens on (--socket or "
                   "CKPTD_SOCKET)";
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

Result<Connection> Connection::connect(const std::string& path) {
  Result<base::UnixAddress> address = base::UnixAddress::of(path);
  if (!address.ok()) {
    Error error = std::move(address).error();
    // The folder is not there yet: the daemon is starting, as if its socket were not bound yet.
    if (error.code == ErrorCode::kNotFound) error.code = ErrorCode::kUnavailable;
    return error;
  }
  base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return connect_error(path, errno);
  // A unix socket connects at once or fails. EAGAIN means a full backlog: retry later.
  if (::connect(socket.get(), address->get(), address->size()) != 0) {
    return connect_error(path, errno);
  }
  CKPT_TRY(check_daemon(socket.get(), path));
  return Connection(std::move(socket));
}

Connection::Connection(base::UniqueFd socket) : socket_(std::move(socket)) {}

Status Connection::send(const fb::MessageT& message, int fd) {
  // A message is too large because of the caller's request: invalid argument, not a lost
  // connection.
  Result<std::vector<std::byte>> frame = wire::try_encode(message);
  if (!frame.ok()) return Error{ErrorCode::kInvalidArgument, frame.error().message};
  unsent_.push_back({std::move(frame).value(), 0, fd});
  return flush();
}

Result<size_t> Connection::send_some(const Outgoing& outgoing) const {
  const ByteView rest = ByteView(outgoing.frame).subspan(outgoing.sent);
  const ssize_t sent =
      base::send_with_fd(socket_.get(), rest, outgoing.sent == 0 ? outgoing.fd : -1);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
  return gone("send", errno);
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

// Bytes received; 0 if none are available yet.
Result<size_t> Connection::receive_some() {
  buffer_.resize(kReceiveBytes);
  std::vector<base::UniqueFd> fds;
  const ssize_t received = base::receive_with_fds(socket_.get(), buffer_, fds).bytes;
  for (base::UniqueFd& fd : fds) received_fds_.push_back(std::move(fd));
  if (received < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    return gone("receive", errno);
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
  // Interrupted or not, the caller polls the socket again.
  (void)::poll(&entry, 1, deadline.poll_timeout_ms());
}

}  // namespace ckpt::lib
