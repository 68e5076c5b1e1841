#include "ckptd/server/http.h"

#include <httplib.h>

#include <chrono>
#include <future>
#include <thread>
#include <utility>

namespace ckptd {

namespace {

// A loop that does not answer within this time is not healthy.
constexpr std::chrono::seconds kAnswerDeadline{2};
constexpr size_t kThreads = 2;

}  // namespace

struct HttpServer::Impl {
  httplib::Server server;
  std::thread thread;
};

ckpt::Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpAddress& address, Ask ask) {
  std::unique_ptr<HttpServer> http(new HttpServer());
  http->impl_ = std::make_unique<Impl>();
  httplib::Server& server = http->impl_->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_keep_alive_max_count(1);
  const auto handler = [ask = std::move(ask)](const httplib::Request& request,
                                              httplib::Response& response) {
    auto promise = std::make_shared<std::promise<Answer>>();
    std::future<Answer> future = promise->get_future();
    ask(request.path, [promise](Answer answer) { promise->set_value(std::move(answer)); });
    Answer answer{.status = 503, .body = "the loop does not answer\n"};
    if (future.wait_for(kAnswerDeadline) == std::future_status::ready) answer = future.get();
    response.status = answer.status;
    response.set_content(answer.body, "text/plain; version=0.0.4");
  };
  for (const char* path : {"/metrics", "/healthz", "/readyz"}) server.Get(path, handler);
  http->port_ = address.port;
  if (address.port == 0) {
    http->port_ = server.bind_to_any_port(address.host);
  } else if (!server.bind_to_port(address.host, address.port)) {
    http->port_ = -1;
  }
  if (http->port_ < 0) {
    return ckpt::make_error(ckpt::ErrorCode::kAlreadyExists,
                            "http {}:{}: the address cannot be listened on", address.host,
                            address.port);
  }
  http->impl_->thread = std::thread([&server] { server.listen_after_bind(); });
  return http;
}

HttpServer::~HttpServer() {
  if (!impl_ || !impl_->thread.joinable()) return;
  impl_->server.stop();
  impl_->thread.join();
}

}  // namespace ckptd
