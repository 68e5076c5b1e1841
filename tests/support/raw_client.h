// A client that can say anything, right or wrong: for tests of what the daemon makes of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/unique_fd.h"
#include "formats/wire/frame.h"

namespace ckpt::test {

class RawClient {
 public:
  explicit RawClient(const std::string& socket);  // fails the test if it cannot connect
  void send_bytes(ByteView bytes);
  // Sends the bytes with these descriptors (SCM_RIGHTS). The errno of a kernel that refuses; else
  // 0.
  int send_with_fds(ByteView bytes, const std::vector<int>& fds, int flags = 0);
  template <typename BodyT>
  void send(BodyT body) {
    send_bytes(wire::encode(std::move(body)));
  }
  // The next message; nullopt once the daemon closed the connection. Fails the test if neither
  // comes within a minute.
  std::optional<fb::MessageT> next();
  // The descriptor that came last; invalid if none has come since the last call.
  base::UniqueFd take_fd() { return std::move(received_fd_); }
  // Says hello as ckptctl would, and takes the answer.
  void hello_control();
  std::optional<fb::QueryReplyT> query(const std::string& verb, const std::string& arguments);

 private:
  ssize_t receive(std::vector<std::byte>& buffer);

  base::UniqueFd fd_;
  base::UniqueFd received_fd_;
  wire::FrameReader reader_;
};

}  // namespace ckpt::test
