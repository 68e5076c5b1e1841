// Session: the connection of one rank to ckptd, kept up across restarts of the daemon.
//
// A small state machine drives it, one non-blocking step at a time, from whatever call the trainer
// makes; there are no threads. After a loss: connect (backoff 10 to 100 ms) -> Hello with the old
// arena -> RegisterUnits -> RejoinEpoch -> own keys, open snapshots and their seals -> ready.
// A call that was waiting for an answer asks again once the session is ready.
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
#include "client/src/silence.h"
#include "client/src/units.h"
#include "formats/arena.h"
#include "formats/unit.h"

namespace ckpt::lib {

class Snapshot;
class RestoreInbox;

// How long a call may wait, what it is called in its error, and what else ends it early.
struct CallOptions {
  Deadline deadline;
  std::string what;
  std::function<std::optional<Error>()> cancelled;
  std::chrono::milliseconds wake_every{0};  // how often `cancelled` is called at least; 0: never

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
    // Told by open() that it waits for room, and why; not called later. May be empty.
    std::function<void(const std::string& why)> waiting;
  };
  // Waits for a daemon to be there, and for room for the arena, until the deadline; an answer that
  // waiting cannot change (another protocol version, not allowed, more than anybody may have) fails
  // at once.
  static Result<std::unique_ptr<Session>> open(Options options, const Deadline& deadline);
  // Aborts snapshots that were not ended, sends what is queued, and hangs up. In a forked child,
  // which shares the socket with the process that opened the session: only closes descriptors.
  ~Session();

  // One turn: reconnects if it is time to, handles every message that has arrived; if nothing
  // happened, waits until something does or the deadline. Never fails: a lost daemon is a state.
  void pump(const Deadline& deadline);

  // Sends the request and waits for its answer, over as many daemons as the deadline allows.
  // `body` has a member `request`, which is set here. An ErrorReply comes back as its Error.
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
  // Sends without waiting for the answer, which comes as news. Returns the request's id through
  // `request`, if wanted. kInvalidArgument: too large; kUnavailable: no daemon right now.
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
  // The same where a message that cannot be sent needs no word: false.
  template <typename Body>
  bool post(Body body, uint64_t* request = nullptr) {
    return send(std::move(body), request).ok();
  }
  // How long the daemon has not answered, as of the last pump().
  uint64_t silence_ms() const { return silence_.ms(); }
  // The caller wants no wait to go on. Asked at least every kInterruptMs while a call waits.
  bool interrupted() const { return options_.interrupted && options_.interrupted(); }
  // Waits until the session is ready.
  Status wait_ready(const CallOptions& options);
  // The error of a call whose deadline has passed: why there is no daemon, or that it took too
  // long.
  Error timed_out(const CallOptions& options) const;
  // Sends what is queued; gives up silently at the deadline or when the daemon goes away.
  void drain_sends(const Deadline& deadline);

  bool ready() const { return phase_ == Phase::kReady; }
  // Counts connections that became ready: differs if the daemon was lost since.
  uint64_t generation() const { return generation_; }
  int fd() const { return connection_ ? connection_->fd() : -1; }
  const Options& options() const { return options_; }

  // The arena; null before the first Welcome and in a control session without one.
  const ArenaMapping* arena() const { return arena_ ? &*arena_ : nullptr; }
  // The slab's bytes, with the page table of this process filled in: the first copy into a slab
  // shall not pay a page fault for every 4 KiB.
  MutableByteView warm_slab(uint32_t slab);
  // As arena(), and promises that the mapping stays until the session ends.
  const ArenaMapping* pin_arena();

  // Somebody else writes into the slab that begins there, until it is taken back as often. See
  // snapshot_places.cc.
  void lend(const std::byte* slab) { ++lent_[slab]; }
  void take_back(const std::byte* slab) {
    const auto found = lent_.find(slab);
    if (found != lent_.end() && --found->second == 0) lent_.erase(found);
  }
  bool is_lent(const std::byte* slab) const { return lent_.contains(slab); }

  Status register_units(Registration registration, const Deadline& deadline);
  const std::vector<UnitSpec>& units() const { return registration_.units; }

  Holds& holds() { return holds_; }
  // Does the daemon know holds?
  bool daemon_holds() const { return daemon_holds_; }

  Group& group() { return group_; }
  const Group& group() const { return group_; }

  void add_snapshot(std::shared_ptr<Snapshot> snapshot);
  void remove_snapshot(const Snapshot* snapshot);
  // What earlier epochs have left. An epoch in which survivors go on opens while the daemon still
  // writes what all ranks had staged: of that this rank hears as ever. Of all else the end was told
  // before; what this rank has not heard of by then it will not hear of, as it was no member then.
  void fail_snapshots_before(Epoch epoch, bool goes_on);
  void set_restore(RestoreInbox* inbox) { restore_ = inbox; }
  bool restoring() const { return restore_ != nullptr; }
  // `slab` was leased anew: what was sealed in it before is no longer there.
  void forget_seal(uint32_t slab);

  std::string error_text;  // of the last call, for ckpt_session_error

 private:
  enum class Phase { kDisconnected, kHandingBack, kGreeting, kRegistering, kRejoining, kReady };
  using MakeMessage = std::function<fb::MessageT(uint64_t request)>;

  explicit Session(Options options);
  // False in a forked child. The socket is the parent's: nothing is sent, nothing received.
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
  void start_registering();
  void start_rejoining();
  void become_ready();
  void handshake_reply(const fb::MessageT& message);
  void lose(Error error);
  // As lose(), where the daemon answered with an error.
  void refused(const fb::ErrorReplyT& reply);

  // session_dispatch.cc: what a message means.
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
  Clock::time_point next_attempt_{};  // when disconnected
  std::chrono::milliseconds backoff_{10};
  std::optional<Error> last_loss_;  // why there is no daemon
  bool refused_ = false;            // the daemon said so itself
  Silence silence_;
  uint64_t heartbeat_request_ = 0;  // waits for its answer; 0: none

  std::optional<ArenaMapping> arena_;
  base::UniqueFd arena_fd_;
  bool arena_pinned_ = false;
  uint32_t slabs_warm_ = 0;           // the first ones, as the daemon says: their pages are there
  std::vector<bool> slab_populated_;  // this process has page table entries for it
  std::vector<ArenaMapping> retired_arenas_;  // pinned, then refused by a new daemon

  std::map<const std::byte*, size_t> lent_;

  Registration registration_;
  bool registered_ = false;
  Group group_;
  std::vector<std::shared_ptr<Snapshot>> snapshots_;  // neither durable nor failed
  std::vector<std::weak_ptr<Snapshot>> handles_;      // all that may still point here
  RestoreInbox* restore_ = nullptr;
  Holds holds_;
  bool daemon_holds_ = false;
  std::map<uint64_t, std::optional<fb::MessageT>> replies_;  // of the calls that wait
};

// What the daemon said in an ErrorReply; an unknown code becomes kFailedPrecondition.
Error error_from(const fb::ErrorReplyT& reply);
Error error_from(int code, const std::string& message);

}  // namespace ckpt::lib
