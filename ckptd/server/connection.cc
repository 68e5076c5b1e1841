#include "ckptd/server/connection.h"

#include <fcntl.h>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>
#include <utility>

#include "ckptd/limits.h"

namespace ckptd {

namespace {

constexpr size_t kReadBytes = 256u << 10;

}  // namespace

Connection::Connection(asio::local::stream_protocol::socket socket, Peer peer, ckpt::SessionId id,
                       Events events)
    : socket_(std::move(socket)),
      process_(socket_.get_executor()),
      hello_deadline_(socket_.get_executor()),
      peer_(std::move(peer)),
      id_(id),
      events_(std::move(events)),
      buffer_(kReadBytes) {}

void Connection::start() {
  asio::error_code error;
  socket_.non_blocking(true, error);
  hello_deadline_.expires_after(limits::kHelloDeadline);
  hello_deadline_.async_wait([self = shared_from_this()](const asio::error_code& cancelled) {
    if (!cancelled && !self->greeted_) self->close("it did not say hello in time");
  });
  if (peer_.pidfd.valid()) {
    process_.assign(peer_.pidfd.release(), error);
    asio::co_spawn(socket_.get_executor(), watch_process(), asio::detached);
  }
  asio::co_spawn(socket_.get_executor(), read_loop(), asio::detached);
}

asio::awaitable<void> Connection::read_loop() {
  const auto self = shared_from_this();
  while (!closed_) {
    asio::error_code error;
    co_await socket_.async_wait(asio::socket_base::wait_read,
                                asio::redirect_error(asio::use_awaitable, error));
    if (error || closed_) co_return;
    if (!read_available()) co_return;
  }
}

asio::awaitable<void> Connection::watch_process() {
  const auto self = shared_from_this();
  asio::error_code error;
  co_await process_.async_wait(asio::posix::stream_descriptor::wait_read,
                               asio::redirect_error(asio::use_awaitable, error));
  if (error || closed_) co_return;
  if (!read_available()) co_return;
  close("process " + std::to_string(peer_.pid) + " died");
}

bool Connection::read_available() {
  while (!closed_) {
    auto received = receive(socket_.native_handle(), buffer_);
    if (!received.ok()) {
      close(received.error().message);
      return false;
    }
    if (received->would_block) return true;
    if (received->fd.valid()) received_fd_ = std::move(received->fd);
    if (received->bytes == 0) {
      close("the connection was closed");
      return false;
    }
    reader_.append(ckpt::ByteView(buffer_).first(received->bytes));
    if (!handle_frames()) return false;
  }
  return false;
}

bool Connection::handle_frames() {
  while (!closed_ && !close_when_sent_) {
    auto message = reader_.next();
    if (!message.ok()) {
      // The stream cannot be followed any further, but the sender can still be told why.
      ckpt::fb::ErrorReplyT reply;
      reply.code = static_cast<int>(message.error().code);
      reply.message = message.error().message;
      send(ckpt::wire::encode(std::move(reply)), -1);
      close_after_sending(message.error().message);
      return !closed_;
    }
    if (!message->has_value()) return true;
    greeted_ = true;
    hello_deadline_.cancel();
    events_.on_message(id_, std::move(**message), std::exchange(received_fd_, {}));
  }
  return !closed_;
}

void Connection::send(std::vector<std::byte> frame, int fd) {
  if (closed_) return;
  queued_bytes_ += frame.size();
  Outgoing outgoing{.frame = std::move(frame), .fd = {}, .sent = 0};
  if (fd >= 0) outgoing.fd.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  queue_.push_back(std::move(outgoing));
  if (queued_bytes_ > limits::kSendQueueBytesMax) {
    close("it does not read what it is sent");
    return;
  }
  if (!waiting_to_write_) flush();
}

void Connection::flush() {
  while (!queue_.empty() && !closed_) {
    Outgoing& next = queue_.front();
    const auto sent = ckptd::send(socket_.native_handle(),
                                  ckpt::ByteView(next.frame).subspan(next.sent), next.fd.get());
    if (!sent.ok()) {
      // Not from inside a send: whoever calls it may be in the middle of something.
      asio::post(socket_.get_executor(), [self = shared_from_this(),
                                          reason = sent.error().message] { self->close(reason); });
      return;
    }
    if (!sent->has_value()) {
      waiting_to_write_ = true;
      socket_.async_wait(asio::socket_base::wait_write,
                         [self = shared_from_this()](const asio::error_code& error) {
                           self->waiting_to_write_ = false;
                           if (!error) self->flush();
                         });
      return;
    }
    next.fd.reset();
    next.sent += **sent;
    if (next.sent < next.frame.size()) continue;
    queued_bytes_ -= next.frame.size();
    queue_.pop_front();
  }
  if (queue_.empty() && close_when_sent_ && !closed_) {
    asio::post(socket_.get_executor(),
               [self = shared_from_this()] { self->close(self->close_when_sent_.value_or("")); });
  }
}

void Connection::close_after_sending(const std::string& reason) {
  if (closed_ || close_when_sent_) return;
  close_when_sent_ = reason;
  if (!waiting_to_write_) flush();
}

void Connection::close(const std::string& reason) {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();
  asio::error_code ignored;
  hello_deadline_.cancel();
  process_.close(ignored);
  socket_.close(ignored);
  queue_.clear();
  // From the loop, never recursively: close() is called from inside the daemon, too.
  asio::post(socket_.get_executor(),
             [self, reason] { self->events_.on_closed(self->id_, reason); });
}

}  // namespace ckptd
