// Dispatches messages to their handlers.
#include "ckptd/daemon_impl.h"
#include "ckptd/sessions/texts.h"

namespace ckptd {

void Daemon::Impl::dispatch(Session& session, fb::MessageT& message, ckpt::base::UniqueFd fd) {
  if (const auto fault = check_texts(message)) {
    replies.refuse(session.id, fault->request, fault->error);
    if (!session.greeted) replies.disconnect(session.id, fault->error.message);
    return;
  }
  if (const auto* body = message.body.AsHello()) return hello(session, *body, std::move(fd));
  if (!session.greeted) {
    ++counters.protocol_errors;
    return replies.disconnect(session.id, "its first message is not a greeting");
  }
  if (dispatch_group(session, message) || dispatch_snapshot(session, message) ||
      dispatch_other(session, message)) {
    return;
  }
  ++counters.protocol_errors;
  replies.disconnect(session.id, fmt::format("message {} is not for a daemon",
                                             fb::EnumNameMessageBody(message.body.type)));
}

bool Daemon::Impl::dispatch_group(Session& session, fb::MessageT& message) {
  switch (message.body.type) {
    case fb::MessageBody::RegisterUnits:
      registry.register_units(session, *message.body.AsRegisterUnits());
      return true;
    case fb::MessageBody::JoinGroup:
      epochs.join(session, *message.body.AsJoinGroup());
      return true;
    case fb::MessageBody::RejoinEpoch:
      epochs.rejoin(session, *message.body.AsRejoinEpoch());
      return true;
    case fb::MessageBody::LeaveGroup: {
      const uint64_t request = message.body.AsLeaveGroup()->request;
      epochs.leave(session);
      replies.done(session.id, request);
      return true;
    }
    case fb::MessageBody::KvSet:
      epochs.kv_set(session, *message.body.AsKvSet());
      return true;
    case fb::MessageBody::KvGet:
      epochs.kv_get(session, *message.body.AsKvGet());
      return true;
    default:
      return false;
  }
}

bool Daemon::Impl::dispatch_snapshot(Session& session, fb::MessageT& message) {
  switch (message.body.type) {
    case fb::MessageBody::BeginSnapshot:
      snapshots->begin(session, *message.body.AsBeginSnapshot());
      return true;
    case fb::MessageBody::LeaseSlabs:
      snapshots->lease(session, *message.body.AsLeaseSlabs());
      return true;
    case fb::MessageBody::SealSlab:
      snapshots->seal(session, *message.body.AsSealSlab());
      return true;
    case fb::MessageBody::AbortSnapshot:
      snapshots->abort(session, *message.body.AsAbortSnapshot());
      return true;
    case fb::MessageBody::ReopenSnapshot:
      snapshots->reopen(session, *message.body.AsReopenSnapshot());
      return true;
    default:
      return false;
  }
}

bool Daemon::Impl::dispatch_other(Session& session, fb::MessageT& message) {
  if (message.body.type == fb::MessageBody::OpenRestore) snapshots->end_handback(session);
  if (readers.handle(session, message)) return true;
  if (message.body.type != fb::MessageBody::Query) return false;
  query(session, *message.body.AsQuery());
  return true;
}

}  // namespace ckptd
