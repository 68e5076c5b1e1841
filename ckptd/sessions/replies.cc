#include "ckptd/sessions/replies.h"

#include "ckptd/limits.h"
#include "formats/base/printable.h"

namespace ckptd {

namespace fb = ckpt::fb;

void Replies::refuse(ckpt::SessionId session, uint64_t request, const ckpt::Error& error) const {
  fb::ErrorReplyT reply;
  reply.request = request;
  reply.code = static_cast<int>(error.code);
  reply.message = ckpt::base::shortened(error.message, limits::kMessageBytesMax);
  reply.detail = static_cast<int>(error.detail);
  send(session, std::move(reply));
}

void Replies::done(ckpt::SessionId session, uint64_t request) const {
  fb::DoneT reply;
  reply.request = request;
  send(session, std::move(reply));
}

void Replies::answer(ckpt::SessionId session, uint64_t request, QueryAnswer answer) const {
  if (answer.json.size() > limits::kQueryReplyBytesMax) {
    return refuse(session, request,
                  ckpt::make_error(ckpt::ErrorCode::kResourceExhausted,
                                   "the answer has {} bytes, the most is {}: ask for it in pages "
                                   "(page), or for less",
                                   answer.json.size(), limits::kQueryReplyBytesMax));
  }
  fb::QueryReplyT reply;
  reply.request = request;
  reply.exit_code = answer.exit_code;
  reply.json = std::move(answer.json);
  send(session, std::move(reply));
}

}  // namespace ckptd
