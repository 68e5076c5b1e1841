// Connection: one non-blocking unix socket to ckptd, for messages and file descriptors.
//
// Splits frames, without knowledge of their content. Only wait() blocks; nothing raises SIGPIPE.
// After any error the connection is unusable and must be replaced. Unsent messages are lost with
// it, and the session repeats them to the next daemon.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "client/src/deadline.h"
#include "formats/base/unique_fd.h"
#include "formats/wire/frame.h"

namespace ckpt::lib {

class Connection {
 public:
  // kUnavailable if no daemon listens at `path` (yet). kPermissionDenied if the system denies
  // access, or if the daemon's user is not trusted (daemon_identity.h).
  static Result<Connection> connect(const std::string& path);
  // Takes over a connected stream socket; for tests with a scripted peer.
  explicit Connection(base::UniqueFd socket);

  // Queues the message and sends as much as the socket takes. `fd` (or -1) is passed along; the
  // caller keeps it open until the message is sent. kInvalidArgument: the message is larger than a
  // frame, nothing was sent, and the connection is still usable.
  Status send(const fb::MessageT& message, int fd = -1);
  // Sends more of the queue, without waiting.
  Status flush();
  bool has_unsent() const { return !unsent_.empty(); }

  // Returns the next received message; nullopt if there is none yet.
  Result<std::optional<fb::MessageT>> receive();
  // Returns the oldest received descriptor; invalid if there is none. The kind of a message tells
  // whether it has a descriptor. Its receiver must take the descriptor, so that later messages get
  // theirs.
  base::UniqueFd take_fd();

  // Waits until data has arrived, queued data can be sent, or the deadline has passed.
  void wait(const Deadline& deadline) const;

  int fd() const { return socket_.get(); }

 private:
  struct Outgoing {
    std::vector<std::byte> frame;
    size_t sent = 0;
    int fd = -1;
  };
  Result<size_t> send_some(const Outgoing& outgoing) const;
  Result<size_t> receive_some();

  base::UniqueFd socket_;
  std::deque<Outgoing> unsent_;
  std::vector<std::byte> buffer_;  // buffer of recvmsg
  wire::FrameReader reader_;
  std::deque<base::UniqueFd> received_fds_;
};

}  // namespace ckpt::lib
