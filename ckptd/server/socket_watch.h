// SocketWatch: notices that the socket's file is gone, and makes it anew.
//
// A cleaner of /tmp, or a person, removes the file; connections go on, but nobody can connect any
// more. Looks once a second, from the loop. While the file cannot be made anew (its folder is gone,
// another daemon has taken the path), fault() says why, and every second is a new try.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "ckptd/server/unix_socket.h"

namespace ckptd {

class SocketWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // For messages: its path, and what is lost without the file ("no new client can connect").
  SocketWatch(UnixSocketFile& file, std::string path, std::string loss)
      : file_(file), path_(std::move(path)), loss_(std::move(loss)) {}

  // True if the file has just been made anew: its owner lets its new socket listen.
  bool look(Clock::time_point now);

  // The file is there, but nobody listens on it: the next look makes it anew.
  void failed(const std::string& reason);

  // What is lost, and why, as one sentence; empty while nothing is.
  const std::string& fault() const { return fault_; }

 private:
  void report(std::string fault);

  UnixSocketFile& file_;
  const std::string path_;
  const std::string loss_;
  Clock::time_point next_look_{};
  std::string fault_;
};

}  // namespace ckptd
