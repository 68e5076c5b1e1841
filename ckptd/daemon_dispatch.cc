// Dispatches messages to their handlers.
#include "ckptd/daemon_impl.h"
#include "ckptd/daemon_texts.h"

namespace ckptd {

namespace {

bool is_about_a_restore(const fb::MessageT& message) {
  return message.body.type == fb::MessageBody::OpenRestore ||
         message.body.type == fb::MessageBody::ReleaseWindow ||
         message.body.type == fb::MessageBody::LocatedRead ||
         message.body.type == fb::MessageBody::CloseRestore;
}

}  // namespace

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
      join(session, *message.body.AsJoinGroup());
      return true;
    case fb::MessageBody::RejoinEpoch:
      rejoin(session, *message.body.AsRejoinEpoch());
      return true;
    case fb::MessageBody::LeaveGroup: {
      const uint64_t request = message.body.AsLeaveGroup()->request;
      leave_group(session);
      replies.done(session.id, request);
      return true;
    }
    case fb::MessageBody::KvSet:
      kv_set(session, *message.body.AsKvSet());
      return true;
    case fb::MessageBody::KvGet:
      kv_get(session, *message.body.AsKvGet());
      return true;
    default:
      return false;
  }
}

bool Daemon::Impl::dispatch_snapshot(Session& session, fb::MessageT& message) {
  switch (message.body.type) {
    case fb::MessageBody::BeginSnapshot:
      begin_snapshot(session, *message.body.AsBeginSnapshot());
      return true;
    case fb::MessageBody::LeaseSlabs:
      lease_slabs(session, *message.body.AsLeaseSlabs());
      return true;
    case fb::MessageBody::SealSlab:
      seal_slab(session, *message.body.AsSealSlab());
      return true;
    case fb::MessageBody::AbortSnapshot:
      abort_snapshot(session, *message.body.AsAbortSnapshot());
      return true;
    case fb::MessageBody::ReopenSnapshot:
      reopen(session, *message.body.AsReopenSnapshot());
      return true;
    default:
      return false;
  }
}

bool Daemon::Impl::dispatch_other(Session& session, fb::MessageT& message) {
  if (is_about_a_restore(message)) holds.progress(session.id, turn.now());
  switch (message.body.type) {
    case fb::MessageBody::OpenRestore:
      open_restore(session, *message.body.AsOpenRestore());
      return true;
    case fb::MessageBody::ReleaseWindow:
      release_window(session, *message.body.AsReleaseWindow());
      return true;
    case fb::MessageBody::LocatedRead:
      located_read(session, *message.body.AsLocatedRead());
      return true;
    case fb::MessageBody::CloseRestore:
      close_restore(session, *message.body.AsCloseRestore());
      return true;
    case fb::MessageBody::HoldCommit:
      hold_commit(session, *message.body.AsHoldCommit());
      return true;
    case fb::MessageBody::RenewHold:
      renew_hold(session, *message.body.AsRenewHold());
      return true;
    case fb::MessageBody::ReleaseHold:
      holds.release(session.id, message.body.AsReleaseHold()->hold);
      return true;
    case fb::MessageBody::Query:
      query(session, *message.body.AsQuery());
      return true;
    default:
      return false;
  }
}

}  // namespace ckptd
