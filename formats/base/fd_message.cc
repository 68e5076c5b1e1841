#include "formats/base/fd_message.h"

#include <array>
#include <cerrno>
#include <cstring>

namespace ckpt::base {

ssize_t send_with_fds(int socket, ByteView bytes, std::span<const int> fds, const SendTo& to) {
  iovec piece{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(to.address);
  message.msg_namelen = to.address_bytes;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  // operator new aligns for any header.
  std::vector<char> control(fds.empty() ? 0 : CMSG_SPACE(fds.size_bytes()));
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | to.flags);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

ssize_t send_with_fd(int socket, ByteView bytes, int fd, const SendTo& to) {
  return send_with_fds(socket, bytes, std::span(&fd, fd < 0 ? 0 : 1), to);
}

Arrived receive_with_fds(int socket, MutableByteView buffer, std::vector<UniqueFd>& fds,
                         int flags) {
  iovec piece{.iov_base = buffer.data(), .iov_len = buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFdsPerReceive * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  Arrived arrived;
  do {
    arrived.bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  } while (arrived.bytes < 0 && errno == EINTR);
  if (arrived.bytes < 0) return arrived;
  arrived.dropped = (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const auto* numbers = reinterpret_cast<const std::byte*>(CMSG_DATA(header));
    for (size_t i = 0; i < count; ++i) fds.emplace_back(load<int>(numbers + i * sizeof(int)));
  }
  return arrived;
}

}  // namespace ckpt::base
