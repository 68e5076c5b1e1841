#include "ckptd/server/socket_io.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace ckptd {

namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;

constexpr size_t kDescriptorsTaken = 2;  // one is wanted; a second one shows that there are more

ckpt::Error system_error(const char* what) {
  return make_error(ErrorCode::kIo, "{}: {}", what, std::strerror(errno));
}

Result<Received> receive_message(int socket, msghdr& message, int flags) {
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | flags);
  } while (got < 0 && errno == EINTR);
  Received received;
  if (got < 0) {
    if (errno != EAGAIN && errno != EWOULDBLOCK) return system_error("receive");
    received.would_block = true;
    return received;
  }
  received.bytes = static_cast<size_t>(got);
  received.descriptors = (message.msg_flags & MSG_CTRUNC) != 0;
  return received;
}

Result<Received> receive_bytes(int socket, ckpt::MutableByteView buffer, int flags) {
  iovec vector{.iov_base = buffer.data(), .iov_len = buffer.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  return receive_message(socket, message, flags);
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
  iovec vector{.iov_base = buffer.data(), .iov_len = buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsTaken * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  auto received = receive_message(socket, message, 0);
  if (!received.ok() || received->would_block) return received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      fds.emplace_back(ckpt::base::load<int>(reinterpret_cast<const std::byte*>(CMSG_DATA(header)) +
                                             i * sizeof(int)));
    }
    received->descriptors = received->descriptors || count > 0;
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

bool end_reading(int socket) {
  if (::shutdown(socket, SHUT_RDWR) != 0) return false;  // the peer sees the end at once, too
  int bytes = -1;
  return ::ioctl(socket, FIONREAD, &bytes) == 0 && bytes == 0;
}

}  // namespace ckptd
