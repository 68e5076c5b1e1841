#include "client/src/holds.h"

#include <fmt/format.h>

#include "client/src/session.h"

namespace ckpt::lib {
namespace {

// Interval of renewals sent to the daemon; a reader may call renew() more often.
constexpr std::chrono::seconds kRenewEvery{1};

}  // namespace

Result<std::unique_ptr<Hold>> Hold::take(Session& session, const HoldOptions& options,
                                         const Deadline& deadline) {
  std::unique_ptr<Hold> hold(new Hold(session, options));
  CKPT_TRY(hold->ask(deadline));
  session.holds().add(hold.get());
  return hold;
}

Hold::~Hold() {
  if (session_ == nullptr) return;
  session_->holds().remove(this);
  if (id_ == 0) return;
  fb::ReleaseHoldT release;
  release.hold = id_;
  session_->post(std::move(release));
}

std::string Hold::what() const {
  if (view_.latest) return fmt::format("run {}: hold", view_.run);
  return fmt::format("run {} step {}: hold", view_.run, view_.step);
}

fb::HoldCommitT Hold::question() const {
  fb::HoldCommitT body;
  body.run = view_.run;
  body.lineage = view_.lineage;
  body.step = view_.step;
  body.latest = view_.latest;
  body.tag = view_.tag;
  body.newest = view_.newest;
  return body;
}

Status Hold::ask(const Deadline& deadline) {
  CKPT_TRY(session_->wait_ready({deadline, what(), {}}));
  if (!session_->daemon_holds()) {
    return make_error(ErrorCode::kVersionMismatch, "{}: this daemon is older and holds nothing",
                      what());
  }
  asking_ = true;
  const auto reply = session_->call(question(), {deadline, what(), {}});
  asking_ = false;
  if (!reply.ok()) return reply.error();
  const fb::CommitHeldT* answer = reply->body.AsCommitHeld();
  if (answer == nullptr) {
    return make_error(ErrorCode::kCorrupt, "{}: the daemon answered with something else", what());
  }
  take_answer(*answer);
  return ok_status();
}

void Hold::take_answer(const fb::CommitHeldT& answer) {
  id_ = answer.hold;
  request_ = 0;
  lease_ms_ = answer.lease_ms;
  renewed_ = Clock::now();
  end_reason_.clear();
  // From now on exactly this view, even if `latest` or the tag moves.
  view_.lineage = answer.lineage;
  view_.step = answer.step;
  view_.latest = false;
  view_.tag.clear();
}

Status Hold::renew(const Deadline& deadline) {
  if (session_ == nullptr) {
    return make_error(ErrorCode::kFailedPrecondition, "{}: its session was closed", what());
  }
  for (;;) {
    session_->pump(Deadline::now());  // receives the end of the hold
    CKPT_TRY(session_->wait_ready({deadline, what(), {}}));
    if (id_ != 0) {
      if (Clock::now() - renewed_ < kRenewEvery) return ok_status();
      renewed_ = Clock::now();
      fb::RenewHoldT body;
      body.hold = id_;
      if (session_->post(std::move(body))) return ok_status();
      continue;  // the daemon was lost just now
    }
    if (request_ == 0) break;
    if (deadline.expired()) return session_->timed_out({deadline, what(), {}});
    session_->pump(deadline);
  }
  const std::string why = end_reason_;
  Status again = ask(deadline);
  if (again.ok()) return again;
  return make_error(again.error().code, "{} ended ({}) and cannot be had again: {}", what(),
                    why.empty() ? "the daemon was restarted" : why, again.error().message);
}

void Holds::session_is_ready(Session& session) {
  for (Hold* hold : holds_) {
    hold->id_ = 0;
    hold->request_ = 0;
    if (hold->end_reason_.empty()) hold->end_reason_ = "the daemon was restarted";
    // A waiting call repeats its own request. If nothing is sent here, renew() asks.
    if (!hold->asking_) (void)session.post(hold->question(), &hold->request_);
  }
}

void Holds::session_closes() {
  for (Hold* hold : holds_) hold->session_ = nullptr;
  holds_.clear();
}

bool Holds::take_answer(const fb::CommitHeldT& answer) {
  for (Hold* hold : holds_) {
    if (hold->request_ == 0 || hold->request_ != answer.request) continue;
    hold->take_answer(answer);
    return true;
  }
  return false;
}

bool Holds::take_error(const fb::ErrorReplyT& error) {
  for (Hold* hold : holds_) {
    if (hold->request_ == 0 || hold->request_ != error.request) continue;
    hold->request_ = 0;
    return true;
  }
  return false;
}

void Holds::take_end(const fb::HoldEndedT& end) {
  for (Hold* hold : holds_) {
    if (hold->id_ == 0 || hold->id_ != end.hold) continue;
    hold->id_ = 0;
    hold->end_reason_ = end.reason;
  }
}

}  // namespace ckpt::lib
