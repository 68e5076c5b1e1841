// The address of a unix socket, also where its path is longer than the 107 bytes that a sockaddr_un
// holds. A long path is reached through its folder: /proc/self/fd/N/NAME.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>
#include <string_view>

#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckpt::base {

// The path that users name as unix:PATH, or as PATH alone.
std::string unix_socket_path(std::string_view address);

// True of "tcp:HOST:PORT" and the like: a scheme other than unix stands before any `/`, and no file
// has that name. ckptd serves unix sockets alone, so that nothing will ever listen there.
bool is_network_address(std::string_view address);

// Why no socket can have this path, as "the path of a socket has ..."; empty: it may have it. Looks
// at the text alone.
std::string unix_path_fault(const std::string& path);

// To be kept as long as bind() or connect() needs the address. A system call that takes a path
// (stat, chmod, unlink) takes the path itself.
class UnixAddress {
 public:
  // kInvalidArgument: unix_path_fault(). kNotFound, kPermissionDenied, kIo: the folder of a long
  // path cannot be opened.
  static Result<UnixAddress> of(const std::string& path);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return sizeof address_; }

 private:
  UnixAddress() = default;
  sockaddr_un address_{};
  UniqueFd folder_;  // of a long path
};

}  // namespace ckpt::base
