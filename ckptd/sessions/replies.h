// Replies: answers to connected sessions. Answers to a session that has disconnected are dropped.
#pragma once

#include <cstdint>
#include <utility>

#include "ckptd/query/query.h"
#include "ckptd/sessions/outbox.h"
#include "ckptd/sessions/session.h"
#include "formats/base/result.h"

namespace ckptd {

class Replies {
 public:
  Replies(const Sessions& sessions, Outbox& outbox) : sessions_(sessions), outbox_(outbox) {}

  // `fd`, if >= 0, goes with the message; the caller still owns it.
  template <typename BodyT>
  void send(ckpt::SessionId session, BodyT body, int fd = -1) const {
    if (!sessions_.contains(session)) return;
    ckpt::fb::MessageT message;
    message.body.Set(std::move(body));
    outbox_.send(session, message, fd);
  }
  // Request 0: the error is about the session itself.
  void refuse(ckpt::SessionId session, uint64_t request, const ckpt::Error& error) const;
  void done(ckpt::SessionId session, uint64_t request) const;
  // An answer longer than a message allows becomes kResourceExhausted.
  void answer(ckpt::SessionId session, uint64_t request, QueryAnswer answer) const;
  void disconnect(ckpt::SessionId session, const std::string& reason) const {
    outbox_.disconnect(session, reason);
  }

 private:
  const Sessions& sessions_;
  Outbox& outbox_;
};

}  // namespace ckptd
