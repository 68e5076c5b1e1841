// What is answered to an HTTP request, as text: the part of the HTTP server that reads what others
// wrote. Pure.
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
// What is at `path`; nullopt: nothing.
using HttpAsk = std::function<std::optional<HttpAnswer>(const std::string& path)>;

// The answer to `GET /path?query HTTP/1.1` and its headers, which say nothing that matters here.
std::string http_response(std::string_view request, const HttpAsk& ask);

}  // namespace ckptd
