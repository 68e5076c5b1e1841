// SocketWatch: detects that the socket's file is gone, and creates it again.
//
// A cleaner of /tmp, or a person, may remove the file: connections continue, but no client can
// connect. Checks once a second, from the loop. While the file cannot be created (its folder is
// gone, another daemon has taken the path), fault() says why; retries every second.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "ckptd/server/unix_socket.h"

namespace ckptd {

class SocketWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // For messages: the path, and the loss without the file ("no new client can connect").
  SocketWatch(UnixSocketFile& file, std::string path, std::string loss)
      : file_(file), path_(std::move(path)), loss_(std::move(loss)) {}

  // True if the file was just created again: the caller then calls listen() on it.
  bool poll(Clock::time_point now);

  // The file exists, but no process listens on it: the next poll() creates it again.
  void failed(const std::string& reason);

  // The loss and its reason, as one sentence; empty while there is none.
  const std::string& fault() const { return fault_; }

 private:
  void report(std::string fault);

  UnixSocketFile& file_;
  const std::string path_;
  const std::string loss_;
  Clock::time_point next_poll_{};
  std::string fault_;
};

}  // namespace ckptd
