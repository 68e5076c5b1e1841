// Dispatches messages of the daemon: answers to waiting calls, and notifications.
#include "client/src/restore.h"
#include "client/src/session.h"
#include "client/src/snapshot.h"

namespace ckpt::lib {
namespace {

// Id of the request that a message answers; 0 for a notification.
uint64_t answered_request(const fb::MessageT& message) {
  switch (message.body.type) {
    case fb::MessageBody::ErrorReply:
      return message.body.AsErrorReply()->request;
    case fb::MessageBody::Done:
      return message.body.AsDone()->request;
    case fb::MessageBody::EpochStarted:
      return message.body.AsEpochStarted()->request;
    case fb::MessageBody::KvValue:
      return message.body.AsKvValue()->request;
    case fb::MessageBody::SlabsLeased:
      return message.body.AsSlabsLeased()->request;
    case fb::MessageBody::QueryReply:
      return message.body.AsQueryReply()->request;
    case fb::MessageBody::CommitHeld:
      return message.body.AsCommitHeld()->request;
    case fb::MessageBody::BlobsListed:
      return message.body.AsBlobsListed()->request;
    default:
      return 0;
  }
}

}  // namespace

// True if at least one message was handled, or the daemon was lost.
bool Session::receive_all() {
  if (const Status flushed = connection_->flush(); !flushed.ok()) {
    connection_failed(flushed.error());
    return true;
  }
  bool handled = false;
  while (connection_) {
    Result<std::optional<fb::MessageT>> message = connection_->receive();
    if (!message.ok()) {
      connection_failed(std::move(message).error());
      return true;
    }
    if (!*message) break;
    if (phase_ == Phase::kReady) silence_.on_message(Clock::now());
    dispatch(std::move(**message));
    handled = true;
  }
  return handled;
}

void Session::dispatch(fb::MessageT message) {
  if (phase_ == Phase::kHandingBack) return handed_back(message);
  switch (message.body.type) {
    case fb::MessageBody::Welcome: {
      if (phase_ != Phase::kGreeting) return;
      const Status taken = take_welcome(*message.body.AsWelcome());
      if (taken.ok()) return start_registering();
      lose(taken.error());
      return reconnect_.not_before(Clock::now() + Reconnect::kPauseAfterMisfit);
    }
    case fb::MessageBody::EpochEnded: {
      const fb::EpochEndedT& ended = *message.body.AsEpochEnded();
      return group_.end(ended.epoch, ended.lost_ranks, ended.reason);
    }
    case fb::MessageBody::JoinersWaiting: {
      const fb::JoinersWaitingT& waiting = *message.body.AsJoinersWaiting();
      return group_.joiners_waiting(waiting.epoch, waiting.count);
    }
    case fb::MessageBody::SnapshotState: {
      const fb::SnapshotStateT& state = *message.body.AsSnapshotState();
      for (const auto& snapshot : std::vector(snapshots_)) snapshot->take_state(state);
      return;
    }
    case fb::MessageBody::RestoreOpened: {
      fb::RestoreOpenedT& opened = *message.body.AsRestoreOpened();
      if (restore_ != nullptr && restore_->take_answer(opened)) return;
      // The restore was abandoned before it was open: close it here, since it holds slabs.
      fb::CloseRestoreT close;
      close.restore = opened.restore;
      post(std::move(close));
      return;
    }
    case fb::MessageBody::RestoreWindow:
      if (restore_ != nullptr) restore_->take(std::move(*message.body.AsRestoreWindow()));
      return;
    case fb::MessageBody::Located: {
      base::UniqueFd file = connection_->take_fd();
      if (restore_ == nullptr) return;
      return restore_->take(LocatedMessage{std::move(*message.body.AsLocated()), std::move(file)});
    }
    case fb::MessageBody::CommitHeld:
      return take_hold(std::move(message));
    case fb::MessageBody::HoldEnded:
      return holds_.take_end(*message.body.AsHoldEnded());
    case fb::MessageBody::SlabsLeased:
      for (const auto& snapshot : std::vector(snapshots_)) {
        snapshot->take_slabs(*message.body.AsSlabsLeased());
      }
      break;
    default:
      break;
  }
  const uint64_t request = answered_request(message);
  if (request != 0 && request == heartbeat_request_) {
    heartbeat_request_ = 0;
    return silence_.answered(Clock::now());
  }
  resolve(request, std::move(message));
}

// Releases a hold whose reader no longer exists.
void Session::take_hold(fb::MessageT message) {
  const fb::CommitHeldT& held = *message.body.AsCommitHeld();
  if (holds_.take_answer(held)) return;
  const uint64_t request = held.request;
  if (replies_.contains(request)) return resolve(request, std::move(message));
  fb::ReleaseHoldT release;
  release.hold = held.hold;
  post(std::move(release));
}

void Session::resolve(uint64_t request, fb::MessageT message) {
  const fb::ErrorReplyT* error = message.body.AsErrorReply();
  if (phase_ == Phase::kGreeting) {
    if (error != nullptr) refused(*error);
    return;
  }
  if (request != 0 && request == handshake_request_ && phase_ != Phase::kReady) {
    return handshake_reply(message);
  }
  const auto waiter = replies_.find(request);
  if (waiter != replies_.end()) {
    waiter->second = std::move(message);
  } else if (error != nullptr) {
    error_without_waiter(*error);
  }
}

// Handles errors without a waiting call: for a seal, a lease, or a restore that fails in the
// middle.
void Session::error_without_waiter(const fb::ErrorReplyT& error) {
  if (restore_ != nullptr && restore_->take_error(error)) return;
  if (holds_.take_error(error)) return;
  for (const auto& snapshot : std::vector(snapshots_)) snapshot->take_error(error);
}

}  // namespace ckpt::lib
