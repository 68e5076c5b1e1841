#include "ckptd/server/connection.h"

#include <fcntl.h>

#include <asio/post.hpp>
#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ckptd/server/coroutine.h"
#include "ckptd/server/socket_io.h"

namespace ckptd {

Connection::Connection(asio::local::stream_protocol::socket socket, Peer peer, ckpt::SessionId id,
                       Events events, Descriptors descriptors, Deadlines deadlines)
    : socket_(std::move(socket)),
      process_(socket_.get_executor()),
      deadlines_(deadlines),
      deadline_(socket_.get_executor()),
      peer_(std::move(peer)),
      id_(id),
      events_(std::move(events)),
      descriptors_(descriptors),
      buffer_(limits::kReadBytesPerTurn),
      elsewhere_(socket_.get_executor()) {
  read_urgent_data_in_line(socket_.native_handle());
}

void Connection::start() {
  asio::error_code error;
  socket_.non_blocking(true, error);
  deadline_.expires_after(deadlines_.hello);
  deadline_.async_wait([self = shared_from_this()](const asio::error_code& cancelled) {
    if (!cancelled && !self->greeted_) self->close("it did not say hello in time");
  });
  if (peer_.pidfd.valid()) {
    process_.assign(peer_.pidfd.release(), error);
    spawn(watch_process());
  }
  spawn(read_loop());
}

void Connection::spawn(asio::awaitable<void> coroutine) {
  spawn_connection(socket_.get_executor(), std::move(coroutine),
                   [self = shared_from_this()](const std::string& why) { self->close(why); });
}

asio::awaitable<void> Connection::read_loop() {
  const auto self = shared_from_this();
  while (!closed_) {
    asio::error_code error;
    co_await socket_.async_wait(asio::socket_base::wait_read,
                                asio::redirect_error(asio::use_awaitable, error));
    if (error || closed_) co_return;
    const Read read = read_turn();
    if (read == Read::kOver) co_return;
    if (read == Read::kElsewhere && receiving_elsewhere_) {
      // The bytes are still in the socket: waiting for it to be readable would spin.
      elsewhere_.expires_at(asio::steady_timer::time_point::max());
      co_await elsewhere_.async_wait(asio::redirect_error(asio::use_awaitable, error));
    }
  }
}

asio::awaitable<void> Connection::watch_process() {
  const auto self = shared_from_this();
  asio::error_code error;
  co_await process_.async_wait(asio::posix::stream_descriptor::wait_read,
                               asio::redirect_error(asio::use_awaitable, error));
  if (error || closed_) co_return;
  co_await drain_then_close("process " + std::to_string(peer_.pid) + " died");
}

// Reads one buffer per loop turn, so that other clients are served in between. read_loop() may have
// read part of the rest.
asio::awaitable<void> Connection::drain_then_close(std::string reason) {
  const auto self = shared_from_this();
  for (size_t turn = 0; turn < limits::kLastReadsMax; ++turn) {
    // The first time, too: the close may have been triggered in the middle of a message.
    co_await asio::post(socket_.get_executor(), asio::use_awaitable);
    if (read_turn() != Read::kMore) break;
  }
  close(reason);
}

// Reads one buffer per turn: a client that sends without pause must not block the loop.
Connection::Read Connection::read_turn() {
  if (closed_) return Read::kOver;
  if (receiving_elsewhere_) return Read::kElsewhere;
  const Read received = receive_bytes();
  if (received != Read::kMore) return received;
  return take_bytes(ckpt::ByteView(buffer_).first(received_bytes_));
}

Connection::Read Connection::receive_bytes() {
  const auto over = [this](const std::string& reason) {
    close(reason);
    return Read::kOver;
  };
  const int socket = socket_.native_handle();
  ckpt::MutableByteView room = buffer_;
  if (descriptors_.allowed) {
    const auto seen = peek(socket, room);
    if (!seen.ok()) return over(seen.error().message);
    if (seen->descriptors) {
      receiving_elsewhere_ = true;
      descriptors_.quarantine.receive(
          descriptors_.of, socket,
          [self = shared_from_this()](ForeignBytes came) { self->take_foreign(std::move(came)); });
      return Read::kElsewhere;
    }
    if (seen->would_block) return Read::kNothing;
    if (seen->bytes == 0) return over("the connection was closed");
    // Read no more than peek() has checked: the next byte may have a descriptor.
    room = room.first(seen->bytes);
  }
  const auto received = receive(socket, room);
  if (!received.ok()) return over(received.error().message);
  if (received->would_block) return Read::kNothing;
  if (received->bytes == 0) return over("the connection was closed");
  received_bytes_ = received->bytes;
  return Read::kMore;
}

// Called when Quarantine has received bytes with descriptors.
void Connection::take_foreign(ForeignBytes came) {
  receiving_elsewhere_ = false;
  elsewhere_.cancel();
  if (!closed_ && came.memory.valid()) std::swap(received_fd_, came.memory);
  // Closes memory that came too late, or earlier memory. Freeing large memory is slow.
  descriptors_.quarantine.close(descriptors_.of, std::move(came.memory));
  if (closed_) return;
  if (!came.error.empty()) return close(came.error);
  if (came.would_block) return;
  if (came.bytes.empty()) return close("the connection was closed");
  take_bytes(came.bytes);
}

Connection::Read Connection::take_bytes(ckpt::ByteView bytes) {
  heard_ = true;
  // The connection is closing. The client must finish sending before it can read the last answer,
  // so its bytes are received and dropped until the deadline.
  if (close_when_sent_) return Read::kMore;
  reader_.append(bytes);
  handle_frames();
  return closed_ ? Read::kOver : Read::kMore;
}

void Connection::handle_frames() {
  while (!closed_ && !close_when_sent_) {
    auto message = reader_.next();
    if (!message.ok()) {
      // The stream cannot be parsed any further, but the sender still gets the reason.
      ckpt::fb::ErrorReplyT reply;
      reply.code = static_cast<int>(message.error().code);
      reply.message = message.error().message;
      send(ckpt::wire::encode(std::move(reply)), -1);
      return close_after_sending(message.error().message);
    }
    if (!message->has_value()) return;
    if (!std::exchange(greeted_, true)) deadline_.cancel();
    hand_up(std::move(**message));
  }
}

// An exception in the middle of a message leaves the daemon's state half changed. noexcept: any
// exception ends the process.
void Connection::hand_up(ckpt::fb::MessageT message) noexcept {
  events_.on_message(id_, std::move(message), std::exchange(received_fd_, {}));
}

void Connection::send(std::vector<std::byte> frame, int fd) {
  if (closed_ || send_failed_) return;
  Outgoing outgoing{.frame = std::move(frame), .fd = {}, .sent = 0};
  if (fd >= 0) {
    outgoing.fd.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    // Sending a frame without its descriptor would violate the protocol. The client reconnects
    // after a close.
    if (!outgoing.fd.valid()) {
      return close(
          fmt::format("cannot duplicate a descriptor for the client: {}", std::strerror(errno)));
    }
  }
  queued_bytes_ += outgoing.frame.size();
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
      // A lost client may have sent messages before.
      send_failed_ = true;
      queue_.clear();
      return spawn(drain_then_close(sent.error().message));
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
  deadline_.expires_after(deadlines_.close);
  deadline_.async_wait([self = shared_from_this(), reason](const asio::error_code& cancelled) {
    if (!cancelled) self->close(reason);
  });
  if (!waiting_to_write_) flush();
}

void Connection::close(const std::string& reason) {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();
  asio::error_code ignored;
  deadline_.cancel();
  elsewhere_.cancel();
  process_.close(ignored);
  ckpt::base::UniqueFd socket(socket_.release(ignored));
  if (descriptors_.allowed) {
    descriptors_.quarantine.close_socket(descriptors_.of, std::move(socket));
  }
  descriptors_.quarantine.close(descriptors_.of, std::move(received_fd_));
  queue_.clear();
  // From the loop, never recursively: close() is called from inside the daemon, too.
  asio::post(socket_.get_executor(), [self, reason] {
    // Quarantine may keep this object alive for as long as a client stalls a call.
    self->buffer_ = {};
    self->events_.on_closed(self->id_, reason);
  });
}

}  // namespace ckptd
