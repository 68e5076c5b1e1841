#include "ckptd/server/listener.h"

#include <fmt/format.h>

#include <utility>

#include "formats/base/open_files.h"

namespace ckptd {

ckpt::Status Listener::assign(ckpt::base::UniqueFd socket, const std::string& path) {
  asio::error_code error;
  acceptor_.assign(asio::local::stream_protocol(), socket.get(), error);
  if (error) {
    return ckpt::make_error(ckpt::ErrorCode::kIo, "socket {}: {}", path, error.message());
  }
  (void)socket.release();
  return {};
}

void Listener::start() {
  paused_ = false;
  accept();
}

void Listener::tick() {
  if (paused_ && listening()) return start();
  fault_.clear();  // the retry of the last tick has not failed
}

ckpt::base::UniqueFd Listener::release() {
  if (!listening()) return {};
  asio::error_code ignored;
  return ckpt::base::UniqueFd(acceptor_.release(ignored));
}

void Listener::accept() {
  if (!may_accept_()) {
    paused_ = true;
    return;
  }
  acceptor_.async_accept([this](const asio::error_code& error, Socket socket) {
    if (!error) {
      accepted_(std::move(socket));
      if (listening()) accept();
      return;
    }
    if (error == asio::error::operation_aborted || !listening()) return;
    // Most likely out of descriptors: retry at the next tick instead of spinning.
    fault_ =
        fmt::format("accept: {}{}", error.message(), ckpt::base::open_files_hint(error.value()));
    paused_ = true;
  });
}

}  // namespace ckptd
