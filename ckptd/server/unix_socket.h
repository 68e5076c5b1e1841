// What Asio has no words for: credentials and descriptors over unix sockets, and process handles.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

// Binds and listens on `path`. A socket file that a dead daemon left is replaced; one that somebody
// listens on is an error (kAlreadyExists).
ckpt::Result<ckpt::base::UniqueFd> listen_unix(const std::string& path);

struct Peer {
  uid_t uid = 0;
  pid_t pid = 0;
  ckpt::base::UniqueFd pidfd;  // readable when the process has ended; not valid if there is none
};
// Who connected: SO_PEERCRED, and a handle of the process that cannot be confused with a later
// process of the same number (SO_PEERPIDFD; before Linux 6.5 pidfd_open at once).
ckpt::Result<Peer> peer_of(int socket);

// Reads what is there into `buffer`, without blocking. 0 bytes and no `would_block`: end of stream.
struct Received {
  size_t bytes = 0;
  bool would_block = false;
  ckpt::base::UniqueFd fd;  // the last descriptor that came along
};
ckpt::Result<Received> receive(int socket, ckpt::MutableByteView buffer);

// Sends as much as fits without blocking; `fd`, if >= 0, goes with the first byte. nullopt: nothing
// fits now.
ckpt::Result<std::optional<size_t>> send(int socket, ckpt::ByteView bytes, int fd);

// Tells systemd, if it started us ($NOTIFY_SOCKET), e.g. "READY=1".
void notify_systemd(const std::string& state);

}  // namespace ckptd
