#include "ckptd/server/socket_io.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "formats/base/fd_message.h"

namespace ckptd {

namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;

ckpt::Error system_error(const char* what) {
  return make_error(ErrorCode::kIo, "{}: {}", what, std::strerror(errno));
}

// The result of one receive: bytes and descriptors, or -1 bytes with errno.
Result<Received> received_from(ssize_t bytes, bool descriptors) {
  Received received;
  if (bytes < 0) {
    if (errno != EAGAIN && errno != EWOULDBLOCK) return system_error("receive");
    received.would_block = true;
    return received;
  }
  received.bytes = static_cast<size_t>(bytes);
  received.descriptors = descriptors;
  return received;
}

// Receives without room for descriptors.
Result<Received> receive_bytes(int socket, ckpt::MutableByteView buffer, int flags) {
  iovec vector{.iov_base = buffer.data(), .iov_len = buffer.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | flags);
  } while (got < 0 && errno == EINTR);
  return received_from(got, (message.msg_flags & MSG_CTRUNC) != 0);
}

}  // namespace

void read_urgent_data_in_line(int socket) {
  const int yes = 1;
  (void)::setsockopt(socket, SOL_SOCKET, SO_OOBINLINE, &yes, sizeof(yes));
}

Result<Received> peek(int socket, ckpt::MutableByteView buffer) {
  return receive_bytes(socket, buffer, MSG_PEEK);
}

Result<Received> receive(int socket, ckpt::MutableByteView buffer) {
  return receive_bytes(socket, buffer, 0);
}

Result<Received> receive_with_fds(int socket, ckpt::MutableByteView buffer,
                                  std::vector<ckpt::base::UniqueFd>& fds) {
  const size_t before = fds.size();
  const auto [bytes, dropped] = ckpt::base::receive_with_fds(socket, buffer, fds, MSG_DONTWAIT);
  return received_from(bytes, dropped || fds.size() > before);
}

Result<std::optional<size_t>> send(int socket, ckpt::ByteView bytes, int fd) {
  const ssize_t sent = ckpt::base::send_with_fd(socket, bytes, fd, {.flags = MSG_DONTWAIT});
  if (sent >= 0) return std::optional<size_t>(static_cast<size_t>(sent));
  if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<size_t>();
  return system_error("send");
}

bool end_reading(int socket) {
  if (::shutdown(socket, SHUT_RDWR) != 0) return false;  // the peer sees the end at once
  int bytes = -1;
  return ::ioctl(socket, FIONREAD, &bytes) == 0 && bytes == 0;
}

}  // namespace ckptd
