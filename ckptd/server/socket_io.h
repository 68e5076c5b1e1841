// Bytes and descriptors over a unix socket, without blocking.
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
  // Descriptors came with these bytes: still there after peek(), dropped by receive().
  bool descriptors = false;
};

// Must be called on each accepted socket before the first byte is read from it. Otherwise urgent
// data (MSG_OOB), which may carry descriptors, is dropped inside a later receive, unseen by peek().
void read_urgent_data_in_line(int socket);

// Looks at what the next receive() of as many bytes would get. Takes nothing.
ckpt::Result<Received> peek(int socket, ckpt::MutableByteView buffer);
// Takes bytes. Descriptors among them are dropped by the kernel in this call, which may block: only
// for sockets that refuse descriptors, and for bytes that peek() has seen to have none.
ckpt::Result<Received> receive(int socket, ckpt::MutableByteView buffer);
// Takes bytes and the first two descriptors that come along: close-on-exec, appended to `fds`. The
// kernel drops the others in this call, which may block: for threads that may do so.
ckpt::Result<Received> receive_with_fds(int socket, ckpt::MutableByteView buffer,
                                        std::vector<ckpt::base::UniqueFd>& fds);

// Sends as much as fits; `fd`, if >= 0, goes with the first byte. nullopt: nothing fits now.
ckpt::Result<std::optional<size_t>> send(int socket, ckpt::ByteView bytes, int fd);

// True if nothing is left to be received, and nothing can come any more: `socket` is shut down for
// reading first. Closing it then drops no foreign descriptor.
bool end_reading(int socket);

}  // namespace ckptd
