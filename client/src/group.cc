#include "client/src/group.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "client/src/session.h"
#include "formats/base/printable.h"

namespace ckpt::lib {
namespace {

// Timeout of ckpt_kv_set, which has no parameter for it: the daemon answers from memory.
constexpr uint32_t kKvSetTimeoutMs = 30'000;

// Time from the join to the first request for its reason to wait, and between two requests.
constexpr std::chrono::milliseconds kJoinNotice{1'000};
constexpr std::chrono::milliseconds kJoinNoticeEvery{5'000};
constexpr std::chrono::milliseconds kJoinQuestionMax{1'000};

// JoinWait: asks the daemon why a join waits, and reports changes to the caller. The last request
// is sent shortly before the deadline of the join, so that its error can name the reason. No
// request outlasts the deadline.
class JoinWait {
 public:
  JoinWait(Session& session, const std::function<void(const std::string&)>& report,
           std::chrono::milliseconds timeout)
      : session_(session),
        report_(report),
        every_(std::min(kJoinNotice, timeout / 4)),
        deadline_(Clock::now() + timeout),
        last_(deadline_.at() - every_),
        next_(std::min(Clock::now() + kJoinNotice, last_)) {}

  // Longest interval between two calls of poll().
  std::chrono::milliseconds every() const { return every_; }
  const Deadline& deadline() const { return deadline_; }

  void poll() {
    const Clock::time_point now = Clock::now();
    if (over_ || now < next_ || deadline_.expired() || !session_.ready()) return;
    next_ = now < last_ ? std::min(now + kJoinNoticeEvery, last_) : deadline_.at();
    ask();
  }
  // Last known reason of the wait; empty if unknown.
  const std::string& reason() const { return reason_; }

 private:
  void ask() {
    fb::QueryT question;
    question.verb = "join";
    const auto reply = session_.call(
        question,
        {deadline_.or_earlier(Clock::now() + kJoinQuestionMax), "asking why the join waits", {}});
    const fb::QueryReplyT* answer = reply.ok() ? reply->body.AsQueryReply() : nullptr;
    // A daemon that does not know the request is not asked again.
    over_ = reply.ok() && (answer == nullptr || answer->exit_code != 0);
    if (answer == nullptr || over_) return;
    const auto document = nlohmann::json::parse(answer->json, nullptr, false);
    if (!document.is_object() || !document.contains("reason")) return;
    const auto& reason = document["reason"];
    if (!reason.is_string() || reason.get_ref<const std::string&>() == reason_) return;
    reason_ = base::printable(reason.get<std::string>(), kReasonBytesMax);
    if (!reason_.empty() && report_) report_(reason_);
  }

  static constexpr size_t kReasonBytesMax = 1024;
  Session& session_;
  const std::function<void(const std::string&)>& report_;
  const std::chrono::milliseconds every_;
  const Deadline deadline_;
  const Clock::time_point last_;  // one more request is sent after this time
  Clock::time_point next_;
  std::string reason_;
  bool over_ = false;
};

CallOptions while_epoch_lives(Session& session, const Deadline& deadline, std::string what) {
  return {deadline,
          std::move(what),
          [&session]() -> std::optional<Error> {
            const Status alive = session.group().check_alive(session.options().run);
            if (alive.ok()) return std::nullopt;
            return alive.error();
          },
          {}};
}

}  // namespace

void Group::start(const fb::EpochStartedT& epoch, uint64_t job) {
  epoch_ = epoch;
  job_ = job;
  joined_ = true;
  own_keys_.clear();
}

void Group::end(Epoch epoch, std::vector<Rank> lost, std::string reason) {
  ended_epoch_ = epoch;
  lost_ = std::move(lost);
  reason_ = std::move(reason);
}

Status Group::check_alive(std::string_view run) const {
  if (!joined_) {
    return make_error(ErrorCode::kFailedPrecondition, "run {}: join the group first", run);
  }
  if (!ended()) return ok_status();
  if (lost_.empty()) {
    return make_error(ErrorCode::kAborted, "run {} epoch {} has ended: {}", run, epoch_.epoch,
                      reason_);
  }
  return make_error(ErrorCode::kAborted, "run {} epoch {} has ended: lost rank {}: {}", run,
                    epoch_.epoch, fmt::join(lost_, ", "), reason_);
}

Status join_group(Session& session, const JoinOptions& options) {
  if (options.size == 0 || options.rank >= options.size) {
    return make_error(ErrorCode::kInvalidArgument, "run {}: rank {} of a group of {}",
                      session.options().run, options.rank, options.size);
  }
  fb::JoinGroupT body;
  body.rank = options.rank;
  body.size = options.size;
  body.resume = options.resume;
  body.resume_lineage = options.resume_lineage;
  body.resume_step = options.resume_step;
  body.elastic = options.elastic;
  body.member = options.member;
  body.grace_ms = options.grace_ms;
  body.job = options.job;
  // Leave any epoch: the caller wants a new one, and a reconnect must not rejoin the old one.
  session.group().leave();
  JoinWait wait(session, options.waiting, std::chrono::milliseconds(options.timeout_ms));
  const CallOptions call{wait.deadline(),
                         fmt::format("run {}: rank {} joining a group of {}", session.options().run,
                                     options.rank, options.size),
                         [&wait]() -> std::optional<Error> {
                           wait.poll();
                           return std::nullopt;
                         },
                         wait.every()};
  Result<fb::MessageT> reply = session.call(body, call);
  if (!reply.ok()) {
    Error error = std::move(reply).error();
    if (error.code != ErrorCode::kDeadlineExceeded) return error;
    if (const std::string& why = wait.reason(); !why.empty()) error.message += ": " + why;
    session.post(fb::LeaveGroupT());  // the group must not wait for this rank
    return error;
  }
  const fb::EpochStartedT* started = reply->body.AsEpochStarted();
  if (started == nullptr) {
    return make_error(ErrorCode::kCorrupt, "{}: the daemon answered with something else",
                      call.what);
  }
  const bool complete =
      !options.elastic || (started->members.size() == started->size &&
                           (!started->goes_on || started->previous_ranks.size() == started->size));
  if (!complete) {
    return make_error(ErrorCode::kCorrupt, "{}: the daemon did not say who is in epoch {}",
                      call.what, started->epoch);
  }
  CKPT_TRY(session.run_units().epoch_started(started->grown));
  session.group().start(*started, options.job);
  session.fail_snapshots_before(started->epoch, started->goes_on);
  return ok_status();
}

Status leave_group(Session& session, const Deadline& deadline) {
  if (!session.group().alive()) {
    session.group().leave();
    return ok_status();
  }
  const auto left = session.call(
      fb::LeaveGroupT(),
      while_epoch_lives(session, deadline,
                        fmt::format("run {}: leaving the group", session.options().run)));
  session.group().leave();
  // If the epoch has ended in the meantime, the rank has left it, too.
  if (left.ok() || left.error().code == ErrorCode::kAborted) return ok_status();
  return left.error();
}

Status kv_set(Session& session, const std::string& key, std::vector<uint8_t> value) {
  CKPT_TRY(session.group().check_alive(session.options().run));
  fb::KvSetT body;
  body.epoch = session.group().epoch().epoch;
  body.key = key;
  body.value = value;
  CKPT_TRY(session.call(
      body, while_epoch_lives(session, Deadline::after_ms(kKvSetTimeoutMs),
                              fmt::format("run {}: setting key {}", session.options().run, key))));
  session.group().own_keys()[key] = std::move(value);
  return ok_status();
}

Result<std::vector<uint8_t>> kv_get(Session& session, const std::string& key,
                                    const Deadline& deadline) {
  CKPT_TRY(session.group().check_alive(session.options().run));
  fb::KvGetT body;
  body.epoch = session.group().epoch().epoch;
  body.key = key;
  const CallOptions call = while_epoch_lives(
      session, deadline, fmt::format("run {}: waiting for key {}", session.options().run, key));
  CKPT_ASSIGN(fb::MessageT reply, session.call(body, call));
  fb::KvValueT* value = reply.body.AsKvValue();
  if (value == nullptr) {
    return make_error(ErrorCode::kCorrupt, "{}: the daemon answered with something else",
                      call.what);
  }
  return std::move(value->value);
}

}  // namespace ckpt::lib
