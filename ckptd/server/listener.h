// Listener: accepts connections on a unix socket until it is closed. Loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <functional>
#include <string>
#include <utility>

#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

class Listener {
 public:
  using Socket = asio::local::stream_protocol::socket;
  // `may_accept`: asked before each accept; after "no" it is asked again at each tick.
  Listener(asio::io_context& loop, std::function<void(Socket)> accepted,
           std::function<bool()> may_accept)
      : acceptor_(loop), accepted_(std::move(accepted)), may_accept_(std::move(may_accept)) {}

  ckpt::Status assign(ckpt::base::UniqueFd socket, const std::string& path);
  bool listening() const { return acceptor_.is_open(); }
  int fd() { return acceptor_.native_handle(); }
  void start();
  void tick();
  // Why the last accept failed, with what to do; empty if no accept has failed since.
  const std::string& fault() const { return fault_; }
  // Stops it. Unaccepted clients may have passed descriptors: close the socket as theirs.
  ckpt::base::UniqueFd release();

 private:
  void accept();

  asio::local::stream_protocol::acceptor acceptor_;
  const std::function<void(Socket)> accepted_;
  const std::function<bool()> may_accept_;
  bool paused_ = false;
  std::string fault_;
};

}  // namespace ckptd
