// Connection: one non-blocking unix socket to ckptd, messages in and out, file descriptors along.
//
// It knows frames, not what they mean. Nothing here blocks but wait(), nothing raises SIGPIPE.
// After any error the connection is dead and is thrown away; messages not yet sent are lost with
// it, and the session says them again to the next daemon.
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
  // kUnavailable if nobody listens at `path` (yet), kPermissionDenied if we may not, or if a user
  // listens there that is not trusted (daemon_identity.h).
  static Result<Connection> connect(const std::string& path);
  // Takes over a connected stream socket; for tests with a scripted peer.
  explicit Connection(base::UniqueFd socket);

  // Queues the message and sends what the socket takes. `fd` (or -1) travels with it; the caller
  // keeps it open until the message is out. kInvalidArgument: the message is larger than a frame,
  // nothing was sent and the connection is as it was.
  Status send(const fb::MessageT& message, int fd = -1);
  // Sends more of the queue, without waiting.
  Status flush();
  bool has_unsent() const { return !unsent_.empty(); }

  // The next message that has arrived; nullopt if there is none yet.
  Result<std::optional<fb::MessageT>> receive();
  // The descriptor that came first of those not taken yet; invalid if there is none. Messages that
  // bring one are known by their kind: whoever gets one takes it, so that the next is the next's.
  base::UniqueFd take_fd();

  // Waits until there is something to receive, room to send what is queued, or the deadline.
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
  std::vector<std::byte> buffer_;  // what recvmsg writes into
  wire::FrameReader reader_;
  std::deque<base::UniqueFd> received_fds_;
};

}  // namespace ckpt::lib
