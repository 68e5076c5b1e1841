// Connects the session, or reconnects it with its previous state: the state machine of session.h
// from disconnected to ready. Each step sends only what the next one waits for, so a daemon that
// dies in the middle costs one backoff and nothing else.
#include <sys/eventfd.h>

#include <cerrno>

#include "client/src/session.h"
#include "client/src/snapshot.h"
#include "client/src/units.h"
#include "formats/wire/convert.h"

namespace ckpt::lib {
namespace {

// Limit for the handshake: a daemon that accepts a connection and never answers counts as lost.
// Long, because a daemon that takes back arenas of many ranks checks their bytes first.
constexpr std::chrono::milliseconds kHandshakeMax{30'000};
// Limit for the answer to HandBack, which takes a running daemon no time.
constexpr std::chrono::milliseconds kHandBackMax{5'000};

}  // namespace

// False: no daemon listens; `reconnect_` has the time of the next attempt.
bool Session::step_connect() {
  if (phase_ == Phase::kDisconnected) {
    if (!reconnect_.is_due(Clock::now())) return true;
    return begin_hand_back() || greet({});
  }
  if (phase_ != Phase::kReady && Clock::now() >= handshake_ends_) {
    connection_failed(make_error(
        ErrorCode::kUnavailable,
        "socket {}: ckptd took the connection and has not answered within {} s; look at its log",
        options_.socket, std::chrono::duration_cast<std::chrono::seconds>(kHandshakeMax).count()));
  }
  return phase_ != Phase::kDisconnected;
}

// False: there is no arena to hand back, or no socket for it.
bool Session::begin_hand_back() {
  if (arena_.mapping() == nullptr) return false;
  Result<Connection> connection =
      Connection::connect(options_.socket + std::string(wire::kArenaSocketSuffix));
  if (!connection.ok()) return false;
  fb::MessageT message;
  message.body.Set(fb::HandBackT());
  if (!connection->send(message, arena_.fd()).ok()) return false;
  connection_.emplace(std::move(connection).value());
  phase_ = Phase::kHandingBack;
  handshake_ends_ = Clock::now() + kHandBackMax;
  return true;
}

void Session::handed_back(const fb::MessageT& message) {
  const fb::HandedBackT* answer = message.body.AsHandedBack();
  (void)greet(answer != nullptr ? answer->ticket : fb::Hash());
}

// Without the socket for arenas, the arena is sent with Hello, as in protocol version 2.
void Session::connection_failed(Error error) {
  if (phase_ != Phase::kHandingBack) return lose(std::move(error));
  (void)greet({});
}

// `ticket`: for the arena that was handed back; zero if none was. False if there is no daemon.
bool Session::greet(const fb::Hash& ticket) {
  Result<Connection> connection = Connection::connect(options_.socket);
  if (!connection.ok()) {
    lose(std::move(connection).error());
    return false;
  }
  connection_.emplace(std::move(connection).value());
  handshake_ends_ = Clock::now() + kHandshakeMax;
  phase_ = Phase::kGreeting;
  fb::HelloT hello;
  wire::offer({}, hello);
  hello.client = options_.client_name;
  hello.kind = options_.control ? fb::SessionKind::Control : fb::SessionKind::Trainer;
  hello.run = options_.run;
  hello.arena_bytes = options_.arena_bytes;
  hello.slab_bytes = options_.slab_bytes;
  hello.alarms = options_.alarms;
  int fd = -1;
  if (const ArenaMapping* arena = arena_.mapping(); arena != nullptr) {
    hello.readopt = true;
    hello.arena_bytes = arena->layout().arena_bytes();
    hello.slab_bytes = arena->layout().slab_bytes;
    hello.arena_ticket = ticket;
    if (ticket.low() == 0 && ticket.high() == 0) fd = arena_.fd();
  }
  fb::MessageT message;
  message.body.Set(std::move(hello));
  send_handshake(message, fd);
  return phase_ != Phase::kDisconnected;
}

Status Session::take_welcome(const fb::WelcomeT& welcome) {
  const wire::ProtocolRange chosen{welcome.protocol_version, welcome.protocol_version};
  const Result<uint32_t> agreed = wire::agree(chosen, {});
  if (!agreed.ok()) {
    return make_error(agreed.error().code, "socket {}: {}", options_.socket,
                      agreed.error().message);
  }
  CKPT_TRY(store_.check(wire::from_fb(welcome.store), options_.socket));
  daemon_holds_ = welcome.holds;
  protocol_ = *agreed;
  arena_.set_snapshot_slabs(welcome.snapshot_slabs);
  if (welcome.adopted) {
    if (arena_.mapping() != nullptr) return ok_status();
    return make_error(ErrorCode::kCorrupt, "socket {}: the daemon adopted an arena we do not have",
                      options_.socket);
  }
  if (options_.control && options_.arena_bytes == 0) return ok_status();
  return map_arena(welcome);
}

namespace {

// True if no descriptor is left: the kernel then drops a passed descriptor.
bool descriptors_are_used_up() {
  const base::UniqueFd one_more(::eventfd(0, EFD_CLOEXEC));
  return !one_more.valid() && (errno == EMFILE || errno == ENFILE);
}

}  // namespace

Status Session::map_arena(const fb::WelcomeT& welcome) {
  base::UniqueFd fd = connection_->take_fd();
  if (!fd.valid() && descriptors_are_used_up()) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "socket {}: too many open files (ulimit -n): no descriptor was free for the "
                      "arena; raise the limit",
                      options_.socket);
  }
  if (!fd.valid()) {
    return make_error(ErrorCode::kCorrupt, "socket {}: the daemon sent no arena", options_.socket);
  }
  const ArenaLayout layout{welcome.slab_bytes, welcome.slab_count};
  CKPT_ASSIGN(ArenaMapping mapping, SessionArena::map(fd.get(), layout));
  if (arena_.mapping() != nullptr) {
    const Error refused =
        make_error(ErrorCode::kAborted, "the daemon restarted and did not take the arena back: {}",
                   welcome.server.empty() ? "no reason given" : welcome.server);
    for (const auto& snapshot : std::vector(snapshots_)) snapshot->fail(refused);
  }
  arena_.replace(std::move(mapping), std::move(fd), welcome.warm_bytes);
  return ok_status();
}

// A message that is too large ends the handshake: no answer would follow.
void Session::send_handshake(const fb::MessageT& message, int fd) {
  const Status sent = transmit(message, fd);
  if (!sent.ok() && phase_ != Phase::kDisconnected) lose(sent.error());
}

void Session::start_registering() {
  if (!registered_) return start_rejoining();
  phase_ = Phase::kRegistering;
  handshake_request_ = next_request_++;
  fb::RegisterUnitsT body = to_wire(registration_);
  body.request = handshake_request_;
  if (protocol_ >= wire::kProtocolOfGrowth) body.grown = run_units_.told_again();
  fb::MessageT message;
  message.body.Set(std::move(body));
  send_handshake(message);
}

void Session::start_rejoining() {
  if (!group_.alive()) return become_ready();
  phase_ = Phase::kRejoining;
  handshake_request_ = next_request_++;
  fb::RejoinEpochT body;
  body.request = handshake_request_;
  body.rank = group_.epoch().rank;
  body.epoch = group_.epoch().epoch;
  body.job = group_.job();
  fb::MessageT message;
  message.body.Set(std::move(body));
  send_handshake(message);
}

void Session::become_ready() {
  phase_ = Phase::kReady;
  ++generation_;
  reconnect_.ready();
  silence_.ready();
  // Before anything else: a prune may run at any moment.
  holds_.session_is_ready(*this);
  if (phase_ != Phase::kReady) return;
  if (group_.alive()) {
    for (const auto& [key, value] : group_.own_keys()) {
      fb::KvSetT body;
      body.epoch = group_.epoch().epoch;
      body.key = key;
      body.value = value;
      if (!post(std::move(body))) return;
    }
  }
  for (const auto& snapshot : std::vector(snapshots_)) {
    if (phase_ != Phase::kReady) return;
    snapshot->reopen();
  }
}

void Session::handshake_reply(const fb::MessageT& message) {
  const fb::ErrorReplyT* refusal = message.body.AsErrorReply();
  if (refusal != nullptr) {
    const Error error = error_from(*refusal);
    const bool rejoining = phase_ == Phase::kRejoining && error.code != ErrorCode::kUnavailable;
    if (!rejoining) return refused(*refusal);
    // The new daemon does not know this epoch, or it has ended: the trainer joins the next one.
    group_.end(group_.epoch().epoch, {}, error.message);
    return become_ready();
  }
  switch (phase_) {
    case Phase::kRegistering:
      return start_rejoining();
    case Phase::kRejoining:
      return become_ready();
    default:
      return;
  }
}

void Session::refused(const fb::ErrorReplyT& reply) {
  lose(error_from(reply));
  reconnect_.refused();
}

void Session::lose(Error error) {
  connection_.reset();
  phase_ = Phase::kDisconnected;
  heartbeat_request_ = 0;
  silence_.lost(Clock::now());
  reconnect_.lost(std::move(error), Clock::now());
}

}  // namespace ckpt::lib
