// Outbox: sends messages of the daemon to its clients. The server implements it with sockets, the
// simulation with queues.
#pragma once

#include <string>

#include "formats/base/ids.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

// Called from the loop thread only.
class Outbox {
 public:
  virtual ~Outbox() = default;
  // `fd`, if >= 0, is sent with the message (SCM_RIGHTS); the daemon still owns it.
  virtual void send(ckpt::SessionId session, const ckpt::fb::MessageT& message, int fd) = 0;
  virtual void disconnect(ckpt::SessionId session, const std::string& reason) = 0;
};

}  // namespace ckptd
