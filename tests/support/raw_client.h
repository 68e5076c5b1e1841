// A client that can say anything, right or wrong: for tests of what the daemon makes of it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "formats/base/bytes.h"
#include "formats/base/unique_fd.h"
#include "formats/wire/frame.h"

namespace ckpt::test {

class RawClient {
 public:
  explicit RawClient(const std::string& socket);  // fails the test if nobody listens
  void send_bytes(ByteView bytes);
  template <typename BodyT>
  void send(BodyT body) {
    send_bytes(wire::encode(std::move(body)));
  }
  // The next message; nullopt once the daemon closed the connection. Fails the test if neither
  // comes within a minute.
  std::optional<fb::MessageT> next();
  // Says hello as ckptctl would, and takes the answer.
  void hello_control();
  std::optional<fb::QueryReplyT> query(const std::string& verb, const std::string& arguments);

 private:
  base::UniqueFd fd_;
  wire::FrameReader reader_;
};

}  // namespace ckpt::test
