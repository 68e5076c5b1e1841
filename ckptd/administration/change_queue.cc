#include "ckptd/administration/change_queue.h"

#include <algorithm>
#include <utility>

#include "ckptd/limits.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::SessionId;
using ckpt::Status;

void ChangeQueue::add(const Session& session, const fb::QueryT& message) {
  if (waiting_.size() >= limits::kAdministrationsWaitingMax) {
    return needs_.replies.answer(
        session.id, message.request,
        error_answer(make_error(ErrorCode::kResourceExhausted,
                                "{} changes of history wait already, the most", waiting_.size())));
  }
  waiting_.push_back({session.id, message.request, message.verb, message.args});
  next();
}

Status ChangeQueue::add_registration(SessionId session, const fb::RegisterUnitsT& message) {
  const bool twice = std::ranges::any_of(waiting_, [session](const RequestedChange& change) {
    return change.registration && change.session == session;
  });
  if (twice || waiting_.size() >= limits::kAdministrationsWaitingMax) {
    return make_error(ErrorCode::kResourceExhausted, "{}",
                      twice ? "this session waits for another registration already"
                            : "too many changes of history wait already");
  }
  waiting_.push_back({.session = session,
                      .request = message.request,
                      .verb = {},
                      .args = {},
                      .registration = std::make_shared<fb::RegisterUnitsT>(message)});
  next();
  return {};
}

void ChangeQueue::next() {
  while (!waiting_.empty()) {
    if (!needs_.gate.may(RunActivity::kAdminister)) {
      return needs_.gate.wait(RunActivity::kAdminister, kAllRuns,
                              [this] { needs_.turn.defer([this] { next(); }); });
    }
    if (needs_.history.applies()) return;
    const RequestedChange change = std::move(waiting_.front());
    waiting_.pop_front();
    Session* session = needs_.sessions.find(change.session);
    if (session == nullptr) continue;
    if (change.registration) {
      needs_.register_replacing(*session, *change.registration);
      continue;
    }
    in_progress_ = needs_.gate.begin(RunActivity::kAdminister);
    needs_.execute(*session, change);
  }
}

void ChangeQueue::answer(const RequestedChange& change, const QueryAnswer& answer) {
  needs_.replies.answer(change.session, change.request, answer);
  in_progress_.reset();
}

void ChangeQueue::record(const RequestedChange& change, std::vector<fb::RecordT> records,
                         std::function<QueryAnswer()> then) {
  needs_.history.record(std::move(records),
                        [this, change, then = std::move(then)](const Status& status) {
                          answer(change, status.ok() ? then() : error_answer(status.error()));
                        });
}

}  // namespace ckptd
