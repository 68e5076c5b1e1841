// The text of the answer to an HTTP request: the part of the HTTP server that parses untrusted
// input. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ckptd {

struct HttpAnswer {
  int status = 200;
  std::string body;
};
// The content at `path`; nullopt: not found.
using HttpAsk = std::function<std::optional<HttpAnswer>(const std::string& path)>;

// The answer to `GET /path?query HTTP/1.1`; the request's headers are ignored.
std::string http_response(std::string_view request, const HttpAsk& ask);

}  // namespace ckptd
