// HTTP: /metrics (Prometheus), /healthz (the loop answers), /readyz (the store is open and not
// draining). It lives on the daemon's loop: a loop that stands still is not healthy, and says so by
// saying nothing. A connection is one request, bounded in bytes and time; when there are too many,
// the oldest makes room, so that idle ones keep nobody out.
#pragma once

#include <asio/io_context.hpp>
#include <chrono>
#include <memory>

#include "ckptd/config.h"
#include "ckptd/limits.h"
#include "ckptd/server/http_response.h"
#include "formats/base/result.h"

namespace ckptd {

class HttpServer {
 public:
  using Answer = HttpAnswer;
  using Ask = HttpAsk;

  // Takes the address; the error names it. Nothing is answered before start().
  static ckpt::Result<std::unique_ptr<HttpServer>> open(
      asio::io_context& loop, const HttpAddress& address, Ask ask,
      std::chrono::milliseconds deadline = limits::kHttpDeadline);
  ~HttpServer();
  void start();
  // Drops all connections. What of them still lies in the loop holds nothing of the server.
  void close();
  int port() const;

 private:
  struct Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace ckptd
