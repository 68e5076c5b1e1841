// Connection: one client's socket. Reads frames and hands messages up; queues answers, bounded, and
// sends them as the client reads. Ends once, for the first of these reasons: the process died (by
// its pidfd), the socket closed, the stream is invalid, the daemon closed it.
//
// A socket that allows descriptors is read in two steps: peek() finds bytes with descriptors, which
// Quarantine receives. All other bytes are received here.
//
// Loop thread only. Kept alive by its own pending operations; close() cancels them. Messages that a
// client sent before it died are still handed up: its last seals may complete a snapshot.
#pragma once

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/limits.h"
#include "ckptd/server/quarantine.h"
#include "ckptd/server/unix_socket.h"
#include "formats/base/ids.h"
#include "formats/wire/frame.h"

namespace ckptd {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Events {
    std::function<void(ckpt::SessionId, ckpt::fb::MessageT, ckpt::base::UniqueFd)> on_message;
    // The last event of a connection.
    std::function<void(ckpt::SessionId, const std::string& reason)> on_closed;
  };

  struct Deadlines {
    std::chrono::milliseconds hello = limits::kHelloDeadline;
    std::chrono::milliseconds close = limits::kCloseDeadline;
  };

  // Rules for descriptors from the client.
  struct Descriptors {
    Quarantine& quarantine;
    Quarantine::Class of = 0;
    bool allowed = true;  // false: the kernel refuses them on this socket (RightsOption)
  };

  Connection(asio::local::stream_protocol::socket socket, Peer peer, ckpt::SessionId id,
             Events events, Descriptors descriptors, Deadlines deadlines);
  void start();

  // Queues a frame; `fd`, if >= 0, is duplicated and sent with it. Disconnects a client that lets
  // more than kSendQueueBytesMax queue up.
  void send(std::vector<std::byte> frame, int fd);
  // Sends the queue, then closes; closes without sending if the client does not read in time. Drops
  // everything that the client still sends.
  void close_after_sending(const std::string& reason);
  void close(const std::string& reason);

  const Peer& peer() const { return peer_; }
  // True if not a single byte was read from the client.
  bool silent() const { return !heard_; }

 private:
  struct Outgoing {
    std::vector<std::byte> frame;
    ckpt::base::UniqueFd fd;
    size_t sent = 0;
  };

  asio::awaitable<void> read_loop();
  asio::awaitable<void> watch_process();
  // Drains the socket of a dead client, hands up its last messages, then closes.
  asio::awaitable<void> drain_then_close(std::string reason);
  void spawn(asio::awaitable<void> coroutine);
  // Reads and handles at most one buffer of the received bytes.
  enum class Read { kMore, kNothing, kElsewhere, kOver };
  Read read_turn();
  // kMore: `buffer_` has received bytes in its first `received_bytes_`.
  Read receive_bytes();
  void take_foreign(ForeignBytes came);
  Read take_bytes(ckpt::ByteView bytes);
  void handle_frames();
  void hand_up(ckpt::fb::MessageT message) noexcept;
  void flush();

  asio::local::stream_protocol::socket socket_;
  asio::posix::stream_descriptor process_;
  const Deadlines deadlines_;
  asio::steady_timer deadline_;  // first for the greeting, later for the close
  Peer peer_;
  ckpt::SessionId id_;
  Events events_;
  Descriptors descriptors_;
  ckpt::wire::FrameReader reader_;
  ckpt::base::UniqueFd received_fd_;
  std::vector<std::byte> buffer_;
  size_t received_bytes_ = 0;
  asio::steady_timer elsewhere_;  // cancelled once Quarantine has received
  std::deque<Outgoing> queue_;
  size_t queued_bytes_ = 0;
  bool heard_ = false;
  bool receiving_elsewhere_ = false;
  bool greeted_ = false;
  bool waiting_to_write_ = false;
  bool send_failed_ = false;  // a send failed: reads continue
  bool closed_ = false;
  std::optional<std::string> close_when_sent_;
};

}  // namespace ckptd
