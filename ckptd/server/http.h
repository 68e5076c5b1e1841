// HTTP: /metrics (Prometheus), /healthz (the loop answers), /readyz (the store is open and not
// draining). Its two threads know nothing: each request asks the loop thread and waits, bounded.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ckptd/config.h"
#include "formats/base/result.h"

namespace ckptd {

class HttpServer {
 public:
  struct Answer {
    int status = 200;
    std::string body;
  };
  // Called on an HTTP thread: has the loop thread call `reply` with the answer to `path`, sometime.
  using Ask = std::function<void(const std::string& path, std::function<void(Answer)> reply)>;

  // Binds and listens; the error names the address.
  static ckpt::Result<std::unique_ptr<HttpServer>> start(const HttpAddress& address, Ask ask);
  ~HttpServer();  // stops and joins
  int port() const { return port_; }

 private:
  struct Impl;
  HttpServer() = default;
  std::unique_ptr<Impl> impl_;
  int port_ = 0;
};

}  // namespace ckptd
