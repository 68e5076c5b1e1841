// Bytes over a unix socket, with descriptors beside them (SCM_RIGHTS).
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <span>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/unique_fd.h"

namespace ckpt::base {

struct SendTo {
  int flags = 0;                      // beside MSG_NOSIGNAL, which is always set
  const sockaddr* address = nullptr;  // of a datagram socket that is not connected
  socklen_t address_bytes = 0;
};

// One sendmsg(2), repeated after EINTR. The descriptors go with the first byte and stay the
// caller's. Returns how many bytes were taken; -1: none, and errno says why.
ssize_t send_with_fds(int socket, ByteView bytes, std::span<const int> fds, const SendTo& to = {});
// The same with one descriptor, or with none if it is negative.
ssize_t send_with_fd(int socket, ByteView bytes, int fd, const SendTo& to = {});

struct Arrived {
  ssize_t bytes = 0;     // 0: end of stream; -1: errno says why
  bool dropped = false;  // more descriptors came than fit
};

// Room for descriptors in one receive. One is wanted; a second one shows that there are more.
inline constexpr size_t kFdsPerReceive = 2;

// One recvmsg(2), repeated after EINTR. Descriptors that came along are close-on-exec and appended
// to `fds`. The kernel closes those beyond kFdsPerReceive within this call, which may block.
Arrived receive_with_fds(int socket, MutableByteView buffer, std::vector<UniqueFd>& fds,
                         int flags = 0);

}  // namespace ckpt::base
