#include "client/src/session.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "client/src/snapshot.h"
#include "formats/base/parse.h"

namespace ckpt::lib {
namespace {

// Time limit for sending queued messages when the session is closed.
constexpr uint32_t kCloseFlushMs = 2'000;
// Retry interval after a daemon's "not now" (it is starting, or draining).
constexpr uint32_t kUnavailableRetryMs = 50;

// Errors of the first connection that waiting cannot change. Lack of memory is not among them: the
// arena of a dead trainer is released once its last slab is written.
bool is_final(ErrorCode code) {
  return code != ErrorCode::kUnavailable && code != ErrorCode::kDeadlineExceeded &&
         code != ErrorCode::kIo && code != ErrorCode::kResourceExhausted;
}

// Reports to the caller of Session::open() that it waits for room. Starts after a while, and
// ignores changes of the numbers in the daemon's message.
class RoomWait {
 public:
  explicit RoomWait(std::function<void(const std::string&)> report) : report_(std::move(report)) {}

  void poll(const std::optional<Error>& loss) {
    if (!report_ || !loss || loss->code != ErrorCode::kResourceExhausted) return;
    const Clock::time_point now = Clock::now();
    if (!next_) next_ = now + kReportAfter;
    if (now < *next_ || loss->message == reported_) return;
    next_ = now + kReportAgainAfter;
    reported_ = loss->message;
    report_(reported_);
  }

 private:
  static constexpr std::chrono::seconds kReportAfter{1};
  static constexpr std::chrono::seconds kReportAgainAfter{10};
  const std::function<void(const std::string&)> report_;
  std::optional<Clock::time_point> next_;
  std::string reported_;
};

// Interval at which a waiting call checks for interruption.
constexpr uint32_t kInterruptMs = 50;

// kInvalidArgument: transmit() does not take it for a lost daemon.
Error not_owner_error(std::string_view what) {
  return make_error(ErrorCode::kInvalidArgument,
                    "{}: the session belongs to the process that forked this one; open another",
                    what);
}

// Minimum silence before errors blame a connected daemon. Silence begins when a heartbeat is sent,
// so a shorter silence is the normal time of an answer.
constexpr uint64_t kBlamedSilenceMs = 1'000;

// Waits without a socket.
void sleep_until(const Deadline& deadline) { (void)::poll(nullptr, 0, deadline.poll_timeout_ms()); }

}  // namespace

Result<std::unique_ptr<Session>> Session::open(Options options, const Deadline& deadline) {
  std::unique_ptr<Session> session(new Session(std::move(options)));
  // The caller's function must not be called after open() has returned.
  RoomWait room(std::exchange(session->options_.waiting, {}));
  const CallOptions call{deadline, "cannot connect to ckptd", [&session, &room]() {
                           std::optional<Error> loss = session->reconnect_.why();
                           room.poll(loss);
                           if (loss && !is_final(loss->code)) loss.reset();
                           return loss;
                         }};
  CKPT_TRY(session->wait_ready(call));
  session->warm_slabs(deadline);
  return session;
}

// Fills page table entries now; otherwise the first snapshot would take twice as long.
void Session::warm_slabs(const Deadline& deadline) {
  for (uint32_t slab = 0; slab < arena_.slabs_warm() && !deadline.expired(); ++slab) {
    arena_.warm(slab);
    pump(Deadline::now());
    if (phase_ != Phase::kReady) return;
  }
}

Session::Session(Options options)
    : options_(std::move(options)), owner_(::getpid()), silence_(options_.heartbeat_ms) {}

bool Session::is_owner() const { return ::getpid() == owner_; }

void Session::leave_to_owner() {
  arena_.forget_in_child();
  connection_.reset();
  phase_ = Phase::kDisconnected;
}

Session::~Session() {
  if (!is_owner()) leave_to_owner();
  for (const auto& handle : handles_) {
    if (const auto snapshot = handle.lock()) snapshot->session_closes();
  }
  snapshots_.clear();
  holds_.session_closes();
  if (is_owner()) drain_sends(Deadline::after_ms(kCloseFlushMs));
}

void Session::pump(const Deadline& deadline) {
  const Deadline until =
      options_.interrupted ? deadline.or_earlier(Deadline::after_ms(kInterruptMs).at()) : deadline;
  if (!is_owner()) return sleep_until(until);
  for (;;) {
    const bool connected = step_connect();
    if (connected && connection_ && receive_all()) return;
    silence_.polled(Clock::now());
    if (!connected) return;
    beat();
    if (until.expired()) return;
    if (connection_) {
      connection_->wait(phase_ == Phase::kReady ? until : until.or_earlier(handshake_ends_));
    } else {
      sleep_until(until.or_earlier(reconnect_.next_attempt()));
    }
  }
}

// Sends a heartbeat if one is due. An older daemon refuses the unknown verb, which is an answer,
// too.
void Session::beat() {
  if (phase_ != Phase::kReady || !silence_.heartbeat_due(Clock::now())) return;
  fb::QueryT body;
  body.verb = "ping";
  body.args = "{}";
  if (post(std::move(body), &heartbeat_request_)) silence_.asked(Clock::now());
}

std::optional<Error> Session::ended_early(const CallOptions& options) const {
  if (!is_owner()) return not_owner_error(options.what);
  if (options.cancelled) {
    if (std::optional<Error> error = options.cancelled()) return error;
  }
  if (!interrupted()) return std::nullopt;
  return make_error(ErrorCode::kAborted, "{}: interrupted", options.what);
}

Error Session::timed_out(const CallOptions& options) const {
  if (phase_ != Phase::kReady) return reconnect_.timed_out(options.what, options_.socket);
  if (const uint64_t silent_ms = silence_.ms(); silent_ms >= kBlamedSilenceMs) {
    return make_error(ErrorCode::kDeadlineExceeded,
                      "{}: not done in time: socket {}: ckptd has not answered for {}",
                      options.what, options_.socket,
                      base::format_age(std::chrono::milliseconds(silent_ms)));
  }
  return make_error(ErrorCode::kDeadlineExceeded, "{}: not done in time", options.what);
}

Status Session::wait_ready(const CallOptions& options) {
  for (;;) {
    if (phase_ == Phase::kReady) return ok_status();
    if (std::optional<Error> error = ended_early(options)) return *std::move(error);
    pump(options.deadline);
    if (phase_ != Phase::kReady && options.deadline.expired()) return timed_out(options);
  }
}

// Waits for the answer; nullopt if the daemon was lost first.
Result<std::optional<fb::MessageT>> Session::wait_reply(uint64_t request,
                                                        const CallOptions& options) {
  const uint64_t generation = generation_;
  for (;;) {
    std::optional<fb::MessageT>& reply = replies_.at(request);
    if (reply) return std::move(reply);
    if (phase_ != Phase::kReady || generation != generation_) return std::optional<fb::MessageT>();
    if (std::optional<Error> error = ended_early(options)) return *std::move(error);
    if (options.deadline.expired()) return timed_out(options);
    pump(options.next_wake());
  }
}

Result<fb::MessageT> Session::call_message(const MakeMessage& make, const CallOptions& options) {
  for (;;) {
    CKPT_TRY(wait_ready(options));
    const uint64_t request = next_request_++;
    replies_.emplace(request, std::nullopt);
    Result<std::optional<fb::MessageT>> reply = std::optional<fb::MessageT>();
    const Status sent = transmit(make(request));
    if (sent.ok()) {
      reply = wait_reply(request, options);
    } else if (sent.error().code == ErrorCode::kInvalidArgument) {
      reply = make_error(sent.error().code, "{}: {}", options.what, sent.error().message);
    }
    replies_.erase(request);
    if (!reply.ok()) return std::move(reply).error();
    if (!*reply) continue;  // the daemon was lost: ask the next one
    const fb::ErrorReplyT* error = (*reply)->body.AsErrorReply();
    if (error == nullptr) return std::move(**reply);
    Error failure = error_from(*error);
    if (failure.code != ErrorCode::kUnavailable || options.deadline.expired()) return failure;
    if (std::optional<Error> early = ended_early(options)) return *std::move(early);
    pump(options.deadline.or_earlier(Deadline::after_ms(kUnavailableRetryMs).at()));
  }
}

Status Session::transmit(const fb::MessageT& message, int fd) {
  if (!is_owner()) return not_owner_error("message to ckptd");
  Status sent = connection_->send(message, fd);
  // A message that is too large was not sent: only its caller fails.
  if (!sent.ok() && sent.error().code != ErrorCode::kInvalidArgument) lose(sent.error());
  return sent;
}

void Session::drain_sends(const Deadline& deadline) {
  while (phase_ == Phase::kReady && connection_->has_unsent() && !deadline.expired() &&
         !interrupted()) {
    connection_->wait(deadline.or_earlier(Deadline::after_ms(kInterruptMs).at()));
    pump(Deadline::now());
  }
}

void Session::add_snapshot(std::shared_ptr<Snapshot> snapshot) {
  std::erase_if(handles_, [](const auto& handle) { return handle.expired(); });
  handles_.push_back(snapshot);
  snapshots_.push_back(std::move(snapshot));
}

void Session::remove_snapshot(const Snapshot* snapshot) {
  std::erase_if(snapshots_, [snapshot](const auto& known) { return known.get() == snapshot; });
}

void Session::fail_snapshots_before(Epoch epoch, bool continues) {
  for (const auto& snapshot : std::vector(snapshots_)) {
    if (snapshot->epoch() >= epoch) continue;
    if (continues && snapshot->info().level == fb::SnapshotLevel::Staged) continue;
    snapshot->fail(make_error(ErrorCode::kAborted,
                              "epoch {} ended before this rank heard that it was durable",
                              snapshot->epoch()));
  }
}

void Session::forget_seal(uint32_t slab) {
  for (const auto& snapshot : snapshots_) snapshot->forget_seal(slab);
}

Error error_from(int code, const std::string& message, int detail) {
  const bool known = code >= static_cast<int>(ErrorCode::kInvalidArgument) &&
                     code <= static_cast<int>(ErrorCode::kFailedPrecondition);
  return Error{known ? static_cast<ErrorCode>(code) : ErrorCode::kFailedPrecondition, message,
               static_cast<ErrorDetail>(detail)};
}

Error error_from(const fb::ErrorReplyT& reply) {
  return error_from(reply.code, reply.message, reply.detail);
}

}  // namespace ckpt::lib
