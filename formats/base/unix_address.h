// The address of a unix socket, even if its path is longer than the 107 bytes of a sockaddr_un: a
// long path is reached through its folder, /proc/self/fd/N/NAME.
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

// True for "tcp:HOST:PORT" and similar: a scheme other than unix precedes any `/`, and no file has
// that name. ckptd serves only unix sockets, so no server will ever listen there.
bool is_network_address(std::string_view address);

// Why no socket can have this path: "the path of a socket has ..."; empty: a socket can. Checks
// only the text.
std::string unix_path_fault(const std::string& path);

// Keep this as long as bind() or connect() needs the address. System calls that take a path (stat,
// chmod, unlink) take the path itself.
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
