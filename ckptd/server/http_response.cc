#include "ckptd/server/http_response.h"

#include <fmt/format.h>

namespace ckptd {

namespace {

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Request";
  }
}

std::string response(const HttpAnswer& answer, bool head) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      answer.status, reason_of(answer.status), answer.body.size(),
      head ? std::string_view() : std::string_view(answer.body));
}

}  // namespace

std::string http_response(std::string_view request, const HttpAsk& ask) {
  const std::string_view line = request.substr(0, request.find("\r\n"));
  const size_t method_end = line.find(' ');
  const size_t target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || target_end <= method_end ||
      !line.substr(target_end + 1).starts_with("HTTP/1.")) {
    return response({.status = 400, .body = "not an HTTP/1 request\n"}, false);
  }
  const std::string_view method = line.substr(0, method_end);
  const std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
  const bool head = method == "HEAD";
  if (!head && method != "GET") {
    return response({.status = 405, .body = "GET or HEAD\n"}, false);
  }
  const auto answer = ask(std::string(target.substr(0, target.find('?'))));
  return response(answer.value_or(HttpAnswer{404, "/metrics, /healthz or /readyz\n"}), head);
}

}  // namespace ckptd
