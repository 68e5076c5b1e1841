// HTTP: /metrics (Prometheus), /healthz (the loop answers), /readyz (the store is open and not
// draining). Runs on the daemon's loop: a blocked loop is unhealthy, and cannot answer. A
// connection is one request, bounded in bytes and time. If there are too many connections, the
// oldest is closed, so that idle connections lock no client out.
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

  // Binds the address; the error names it. Requests are answered after start().
  static ckpt::Result<std::unique_ptr<HttpServer>> open(
      asio::io_context& loop, const HttpAddress& address, Ask ask,
      std::chrono::milliseconds deadline = limits::kHttpDeadline);
  ~HttpServer();
  void start();
  // Drops all connections. Their pending operations in the loop hold nothing of the server.
  void close();
  int port() const;

 private:
  struct Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace ckptd
