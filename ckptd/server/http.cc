#include "ckptd/server/http.h"

#include <fmt/format.h>

#include <asio/awaitable.hpp>
#include <asio/buffer.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read_until.hpp>
#include <asio/redirect_error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>
#include <list>
#include <string_view>
#include <utility>

#include "ckptd/server/coroutine.h"

namespace ckptd {

namespace {

using asio::ip::tcp;

struct Client {
  Client(tcp::socket with, std::chrono::milliseconds deadline)
      : socket(std::move(with)), timer(socket.get_executor(), deadline) {}
  void close() {
    asio::error_code ignored;
    socket.close(ignored);
    timer.cancel();
  }
  tcp::socket socket;
  asio::steady_timer timer;
};

// Remedy for the operator; empty if unknown.
std::string_view remedy_for(const asio::error_code& error) {
  if (error == asio::error::address_in_use) {
    return "; name another port with --http, or end the program that listens on this one";
  }
  if (error == asio::error::access_denied) return "; name a port of 1024 or more with --http";
  return "";
}

}  // namespace

struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  Impl(asio::io_context& loop, Ask with, std::chrono::milliseconds limit)
      : acceptor(loop), retry(loop), ask(std::move(with)), deadline(limit) {}

  void accept();
  void accept_later();
  void accepted(tcp::socket socket);
  asio::awaitable<void> serve(std::shared_ptr<Client> client);

  tcp::acceptor acceptor;
  asio::steady_timer retry;
  const Ask ask;
  const std::chrono::milliseconds deadline;
  std::list<std::shared_ptr<Client>> clients;  // oldest first
  bool closed = false;
};

void HttpServer::Impl::accept() {
  acceptor.async_accept(
      [self = shared_from_this()](const asio::error_code& error, tcp::socket socket) {
        if (self->closed || error == asio::error::operation_aborted) return;
        if (error) return self->accept_later();
        self->accepted(std::move(socket));
        self->accept();
      });
}

// Most likely out of descriptors. An immediate retry would fail at once, in an endless loop.
void HttpServer::Impl::accept_later() {
  if (!clients.empty()) clients.front()->close();
  retry.expires_after(limits::kHttpRetry);
  retry.async_wait([self = shared_from_this()](const asio::error_code& cancelled) {
    if (!cancelled && !self->closed) self->accept();
  });
}

void HttpServer::Impl::accepted(tcp::socket socket) {
  if (clients.size() >= limits::kHttpConnectionsMax) {
    clients.front()->close();
    clients.pop_front();
  }
  const auto client = std::make_shared<Client>(std::move(socket), deadline);
  clients.push_back(client);
  client->timer.async_wait([client](const asio::error_code& cancelled) {
    if (!cancelled) client->close();
  });
  spawn_connection(acceptor.get_executor(), serve(client),
                   [client](const std::string&) { client->close(); });
}

asio::awaitable<void> HttpServer::Impl::serve(std::shared_ptr<Client> client) {
  const auto self = shared_from_this();
  std::string request;
  asio::error_code error;
  co_await asio::async_read_until(client->socket,
                                  asio::dynamic_buffer(request, limits::kHttpRequestBytesMax),
                                  "\r\n\r\n", asio::redirect_error(asio::use_awaitable, error));
  if (!error) {
    const std::string answer = http_response(request, ask);
    co_await asio::async_write(client->socket, asio::buffer(answer),
                               asio::redirect_error(asio::use_awaitable, error));
  }
  client->close();
  clients.remove(client);
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { close(); }

ckpt::Result<std::unique_ptr<HttpServer>> HttpServer::open(asio::io_context& loop,
                                                           const HttpAddress& address, Ask ask,
                                                           std::chrono::milliseconds deadline) {
  auto impl = std::make_shared<Impl>(loop, std::move(ask), deadline);
  asio::error_code error;
  tcp::resolver resolver(loop);
  const auto found =
      resolver.resolve(address.host, std::to_string(address.port),
                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (!error) {
    const tcp::endpoint endpoint = found.begin()->endpoint();
    impl->acceptor.open(endpoint.protocol(), error);
    if (!error) impl->acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) impl->acceptor.bind(endpoint, error);
    if (!error) impl->acceptor.listen(asio::socket_base::max_listen_connections, error);
  }
  if (error) {
    return ckpt::make_error(ckpt::ErrorCode::kAlreadyExists,
                            "http {}:{}: the address cannot be listened on: {}{}", address.host,
                            address.port, error.message(), remedy_for(error));
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

void HttpServer::start() { impl_->accept(); }

void HttpServer::close() {
  impl_->closed = true;
  asio::error_code ignored;
  impl_->acceptor.close(ignored);
  impl_->retry.cancel();
  for (const auto& client : impl_->clients) client->close();
  impl_->clients.clear();
}

int HttpServer::port() const {
  asio::error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

}  // namespace ckptd
