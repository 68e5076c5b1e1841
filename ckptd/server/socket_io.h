// Sends and receives bytes and descriptors over a unix socket, without blocking.
#pragma once

#include <optional>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

struct Received {
  size_t bytes = 0;  // 0 and no `would_block`: end of stream
  bool would_block = false;
  // Descriptors came with these bytes: kept after peek(), dropped by receive().
  bool descriptors = false;
};

// Must be called on each accepted socket before the first byte is read from it. Otherwise urgent
// data (MSG_OOB), which may carry descriptors, is dropped inside a later receive, unseen by peek().
void read_urgent_data_in_line(int socket);

// Returns what the next receive() of this size would get. Takes nothing from the socket.
ckpt::Result<Received> peek(int socket, ckpt::MutableByteView buffer);
// Receives bytes. The kernel drops descriptors among them in this call, which may block. Use this
// only on sockets that refuse descriptors, and for bytes that peek() found free of descriptors.
ckpt::Result<Received> receive(int socket, ckpt::MutableByteView buffer);
// Receives bytes and the first two descriptors with them: close-on-exec, appended to `fds`. The
// kernel drops the others in this call, which may block: only for threads that may block.
ckpt::Result<Received> receive_with_fds(int socket, ckpt::MutableByteView buffer,
                                        std::vector<ckpt::base::UniqueFd>& fds);

// Sends as much as fits; `fd`, if >= 0, goes with the first byte. nullopt: nothing fits now.
ckpt::Result<std::optional<size_t>> send(int socket, ckpt::ByteView bytes, int fd);

// Shuts `socket` down for reading first. True if nothing is left to receive, and nothing more can
// arrive: closing the socket then drops no foreign descriptor.
bool end_reading(int socket);

}  // namespace ckptd
