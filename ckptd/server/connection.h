// Connection: one client's socket. Reads frames and hands messages up; queues answers, bounded, and
// sends them as the client reads. Ends once, for whatever reason comes first: the process died (by
// its pidfd), the socket closed, the stream broke, the daemon said so.
//
// A socket that lets descriptors in is read with care: peek() finds bytes with descriptors, and
// Quarantine receives those. All other bytes are received here.
//
// Loop thread only. Kept alive by its own pending operations; close() cancels them. What a client
// sent before it died is still handed up: its last seals may complete a snapshot.
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
    // Last event of a connection.
    std::function<void(ckpt::SessionId, const std::string& reason)> on_closed;
  };

  struct Deadlines {
    std::chrono::milliseconds hello = limits::kHelloDeadline;
    std::chrono::milliseconds close = limits::kCloseDeadline;
  };

  // What the client may pass to us.
  struct Descriptors {
    Quarantine& quarantine;
    Quarantine::Class of = 0;
    bool allowed = true;  // false: the kernel refuses them on this socket (RightsOption)
  };

  Connection(asio::local::stream_protocol::socket socket, Peer peer, ckpt::SessionId id,
             Events events, Descriptors descriptors, Deadlines deadlines);
  void start();

  // Queues a frame; `fd`, if >= 0, is duplicated and travels with it. A client that lets more than
  // kSendQueueBytesMax pile up is disconnected.
  void send(std::vector<std::byte> frame, int fd);
  // Sends what is queued, then closes; if the client does not read it in time, without. What it
  // still sends is dropped.
  void close_after_sending(const std::string& reason);
  void close(const std::string& reason);

  const Peer& peer() const { return peer_; }
  // Nothing has been read from it, not a single byte.
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
  // Reads and handles at most one buffer of what has arrived.
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
  asio::steady_timer deadline_;  // of the greeting, later of the close
  Peer peer_;
  ckpt::SessionId id_;
  Events events_;
  Descriptors descriptors_;
  ckpt::wire::FrameReader reader_;
  ckpt::base::UniqueFd received_fd_;
  std::vector<std::byte> buffer_;
  size_t received_bytes_ = 0;
  asio::steady_timer elsewhere_;  // cancelled when Quarantine has received
  std::deque<Outgoing> queue_;
  size_t queued_bytes_ = 0;
  bool heard_ = false;
  bool receiving_elsewhere_ = false;
  bool greeted_ = false;
  bool waiting_to_write_ = false;
  bool send_failed_ = false;  // A send failed: only reads go on.
  bool closed_ = false;
  std::optional<std::string> close_when_sent_;
};

}  // namespace ckptd
