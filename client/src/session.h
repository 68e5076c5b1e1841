// Session: the connection of one rank to ckptd, restored after each restart of the daemon.
//
// A small state machine, advanced by non-blocking steps inside the trainer's calls; there are no
// threads. After a loss: connect (backoff 10 to 100 ms) -> Hello with the old arena ->
// RegisterUnits -> RejoinEpoch -> own keys, open snapshots and their seals -> ready. A call that
// waited for an answer repeats its request once the session is ready.
//
//   disconnected -> greeting -> registering -> rejoining -> ready
//     |  ^  ^------------------ any error -----------------'
//     '--+--> handing back: the old arena, on the socket PATH.arena. If that fails: with Hello.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/src/connection.h"
#include "client/src/group.h"
#include "client/src/holds.h"
#include "client/src/known_store.h"
#include "client/src/reconnect.h"
#include "client/src/run_units.h"
#include "client/src/session_arena.h"
#include "client/src/silence.h"
#include "client/src/units.h"
#include "formats/unit.h"

namespace ckpt::lib {

class Snapshot;
class RestoreInbox;

// Deadline of a call, its name in errors, and further reasons to end its wait.
struct CallOptions {
  Deadline deadline;
  std::string what;
  std::function<std::optional<Error>()> cancelled;
  std::chrono::milliseconds wake_every{0};  // interval of calls of `cancelled`; 0: none

  Deadline next_wake() const {
    return wake_every.count() > 0 ? deadline.or_earlier(Clock::now() + wake_every) : deadline;
  }
};

class Session {
 public:
  struct Options {
    std::string socket;  // path
    std::string run;
    std::string client_name;
    uint64_t arena_bytes = 0;
    uint64_t slab_bytes = 0;
    bool control = false;
    fb::AlarmPolicy alarms = fb::AlarmPolicy::Default;
    uint32_t heartbeat_ms = 0;          // 0: none
    std::function<bool()> interrupted;  // ends waits; may be empty
    // open() calls this with the reason while it waits for room; never later. May be empty.
    std::function<void(const std::string& why)> waiting;
  };
  // Waits for a daemon, and for room for the arena, until the deadline. Fails at once if waiting
  // cannot help: another protocol version, no permission, more than the maximum quota.
  static Result<std::unique_ptr<Session>> open(Options options, const Deadline& deadline);
  // Aborts snapshots that were not ended, sends queued messages, disconnects. In a forked child,
  // which shares the socket with the process that opened the session: only closes descriptors.
  ~Session();

  // One turn: reconnects if the backoff has passed, and handles every received message. If nothing
  // happened, waits for an event until the deadline. Never fails: a lost daemon is a state.
  void pump(const Deadline& deadline);

  // Sends the request and waits for its answer, across as many daemons as the deadline allows.
  // `body` has a member `request`, which is set here. An ErrorReply is returned as its Error.
  template <typename Body>
  Result<fb::MessageT> call(const Body& body, const CallOptions& options) {
    return call_message(
        [&body](uint64_t request) {
          Body numbered(body);
          numbered.request = request;
          fb::MessageT message;
          message.body.Set(std::move(numbered));
          return message;
        },
        options);
  }
  // Sends without waiting for the answer, which arrives as a later message. Returns the request's
  // id through `request`, if wanted. kInvalidArgument: too large; kUnavailable: no daemon now.
  template <typename Body>
  Status send(Body body, uint64_t* request = nullptr) {
    if (phase_ != Phase::kReady) return make_error(ErrorCode::kUnavailable, "no daemon");
    if constexpr (requires { body.request; }) {
      body.request = next_request_++;
      if (request != nullptr) *request = body.request;
    }
    fb::MessageT message;
    message.body.Set(std::move(body));
    return transmit(message);
  }
  // Same, with a simpler result: false if the message cannot be sent.
  template <typename Body>
  bool post(Body body, uint64_t* request = nullptr) {
    return send(std::move(body), request).ok();
  }
  // Time without an answer of the daemon, as of the last pump().
  uint64_t silence_ms() const { return silence_.ms(); }
  // True if the caller wants waits to end. Checked at least every kInterruptMs while a call waits.
  bool interrupted() const { return options_.interrupted && options_.interrupted(); }
  // Waits until the session is ready.
  Status wait_ready(const CallOptions& options);
  // The error of a call whose deadline has passed: why there is no daemon, or that the call took
  // too long.
  Error timed_out(const CallOptions& options) const;
  // Sends queued messages; stops silently at the deadline or when the daemon is lost.
  void drain_sends(const Deadline& deadline);

  bool ready() const { return phase_ == Phase::kReady; }
  // Counts connections that became ready: differs if the daemon was lost since.
  uint64_t generation() const { return generation_; }
  int fd() const { return connection_ ? connection_->fd() : -1; }
  const Options& options() const { return options_; }

  SessionArena& arena() { return arena_; }

  Status register_units(Registration registration, const Deadline& deadline);
  const std::vector<UnitSpec>& units() const { return run_units_.all(); }
  RunUnits& run_units() { return run_units_; }
  // True if a snapshot with a growth is neither durable nor failed.
  bool growth_in_flight() const;

  Holds& holds() { return holds_; }
  // The protocol version agreed on with the daemon, or with the last one; 0 before the first.
  uint32_t protocol() const { return protocol_; }
  // True if the daemon supports holds.
  bool daemon_holds() const { return daemon_holds_; }

  Group& group() { return group_; }
  const Group& group() const { return group_; }

  void add_snapshot(std::shared_ptr<Snapshot> snapshot);
  void remove_snapshot(const Snapshot* snapshot);
  // Fails snapshots of earlier epochs. If survivors continue, the new epoch opens while the daemon
  // still writes STAGED snapshots: this rank still receives their results. The results of all other
  // snapshots were sent before; a rank without such a result was not a member, and gets none.
  void fail_snapshots_before(Epoch epoch, bool continues);
  void set_restore(RestoreInbox* inbox) { restore_ = inbox; }
  bool restoring() const { return restore_ != nullptr; }
  // `slab` was leased anew: forget the seal of its previous content.
  void forget_seal(uint32_t slab);

  // Error of the last call, for ckpt_session_error and ckpt_session_error_detail.
  std::string error_text;
  ErrorDetail error_detail = ErrorDetail::kNone;

 private:
  enum class Phase { kDisconnected, kHandingBack, kGreeting, kRegistering, kRejoining, kReady };
  using MakeMessage = std::function<fb::MessageT(uint64_t request)>;

  explicit Session(Options options);
  // False in a forked child. The socket belongs to the parent: nothing is sent or received.
  bool is_owner() const;
  void leave_to_owner();
  std::optional<Error> ended_early(const CallOptions& options) const;
  void beat();
  Result<fb::MessageT> call_message(const MakeMessage& make, const CallOptions& options);
  Result<std::optional<fb::MessageT>> wait_reply(uint64_t request, const CallOptions& options);
  // kInvalidArgument: too large, nothing was sent. Any other error: the daemon is lost.
  Status transmit(const fb::MessageT& message, int fd = -1);

  // session_connect.cc: from nothing to ready.
  bool step_connect();
  bool begin_hand_back();
  bool greet(const fb::Hash& ticket);
  void handed_back(const fb::MessageT& message);
  void connection_failed(Error error);
  Status take_welcome(const fb::WelcomeT& welcome);
  Status map_arena(const fb::WelcomeT& welcome);
  void warm_slabs(const Deadline& deadline);
  void send_handshake(const fb::MessageT& message, int fd = -1);
  void start_registering();
  void start_rejoining();
  void become_ready();
  void handshake_reply(const fb::MessageT& message);
  void lose(Error error);
  // Like lose(), after an error answer of the daemon.
  void refused(const fb::ErrorReplyT& reply);

  // session_dispatch.cc: handles received messages.
  bool receive_all();
  void dispatch(fb::MessageT message);
  void take_hold(fb::MessageT message);
  void resolve(uint64_t request, fb::MessageT message);
  void error_without_waiter(const fb::ErrorReplyT& error);

  Options options_;
  const pid_t owner_;
  Phase phase_ = Phase::kDisconnected;
  std::optional<Connection> connection_;
  uint64_t generation_ = 0;
  uint64_t next_request_ = 1;
  uint64_t handshake_request_ = 0;
  Clock::time_point handshake_ends_{};
  Reconnect reconnect_;
  Silence silence_;
  uint64_t heartbeat_request_ = 0;  // unanswered heartbeat; 0: none

  KnownStore store_;
  SessionArena arena_;
  Registration registration_;
  bool registered_ = false;
  RunUnits run_units_;
  Group group_;
  std::vector<std::shared_ptr<Snapshot>> snapshots_;  // neither durable nor failed
  std::vector<std::weak_ptr<Snapshot>> handles_;  // snapshots that may still point to this session
  RestoreInbox* restore_ = nullptr;
  Holds holds_;
  bool daemon_holds_ = false;
  uint32_t protocol_ = 0;
  std::map<uint64_t, std::optional<fb::MessageT>> replies_;  // by request of a waiting call
};

// The error in a daemon's ErrorReply; an unknown code becomes kFailedPrecondition.
Error error_from(const fb::ErrorReplyT& reply);
Error error_from(int code, const std::string& message, int detail);

}  // namespace ckpt::lib
