// SocketWatch: notices that the socket's file is gone, and makes it anew.
//
// A cleaner of /tmp, or a person, removes the file; connections go on, but nobody can connect any
// more. Looks once a second, from the loop. While the file cannot be made anew (its folder is gone,
// another daemon has taken the path), fault() says why, and every second is a new try.
#pragma once

#include <chrono>
#include <string>

#include "ckptd/server/unix_socket.h"

namespace ckptd {

class SocketWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // `path` is for messages.
  SocketWatch(UnixSocketFile& file, std::string path) : file_(file), path_(std::move(path)) {}

  // True if the file has just been made anew: its owner lets its new socket listen.
  bool look(Clock::time_point now);

  // Why no new client can connect, as one sentence; empty while they can.
  const std::string& fault() const { return fault_; }

 private:
  UnixSocketFile& file_;
  const std::string path_;
  Clock::time_point next_look_{};
  std::string fault_;
};

}  // namespace ckptd
