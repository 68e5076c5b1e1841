// Sessions: greeting, arena, and cleanup of a lost session.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "ckptd/daemon_impl.h"
#include "formats/wire/frame.h"

namespace ckptd {

namespace {

constexpr char kServerName[] = "ckptd 0.1.0";

}  // namespace

void Daemon::Impl::hello(Session& session, const fb::HelloT& message, ckpt::base::UniqueFd fd) {
  const auto reject = [&](const Error& error) {
    replies.refuse(session.id, 0, error);
    replies.disconnect(session.id, error.message);
  };
  if (session.greeted) {
    return reject(make_error(ErrorCode::kFailedPrecondition, "a session says hello once"));
  }
  const auto protocol = ckpt::wire::agree({}, ckpt::wire::offered_by(message));
  if (!protocol.ok()) return reject(protocol.error());
  if (draining) {
    return reject(make_error(ErrorCode::kUnavailable, "the daemon is shutting down"));
  }
  if (message.alarms > fb::AlarmPolicy::MAX) {
    return reject(make_error(ErrorCode::kInvalidArgument, "alarms {}: no such policy",
                             static_cast<int>(message.alarms)));
  }
  const bool trainer = message.kind == fb::SessionKind::Trainer;
  if (trainer || !message.run.empty()) {
    if (const Status named = ckpt::validate_name("run", message.run); !named.ok()) {
      return reject(named.error());
    }
  }
  fb::WelcomeT welcome;
  welcome.protocol_version = *protocol;
  welcome.session = session.id;
  welcome.store = ckpt::wire::to_fb(history.store_id());
  welcome.server = kServerName;
  welcome.holds = true;
  int fd_to_send = -1;
  if (trainer || message.arena_bytes > 0) {
    const Status granted = grant_arena(session, message, std::move(fd), welcome, &fd_to_send);
    if (!granted.ok()) return reject(granted.error());
  }
  session.greeted = true;
  session.protocol = *protocol;
  session.kind = message.kind;
  session.client = message.client;
  session.run_name = message.run;
  session.alarms = message.alarms == fb::AlarmPolicy::Default ? options.alarms : message.alarms;
  spdlog::debug("session {}: {} (process {}, protocol {}), run {}", session.id, session.client,
                session.pid, session.protocol, session.run_name);
  replies.send(session.id, std::move(welcome), fd_to_send);
}

// An arena that cannot be adopted is replaced by a new one: the trainer continues, and `server` in
// the answer says why its snapshots in progress are lost.
Status Daemon::Impl::grant_arena(Session& session, const fb::HelloT& message,
                                 ckpt::base::UniqueFd fd, fb::WelcomeT& welcome, int* fd_to_send) {
  std::optional<Staging::Granted> granted;
  if (message.readopt) {
    auto adopted = fd.valid() ? staging->adopt(session.uid, std::move(fd), message.arena_bytes,
                                               message.slab_bytes)
                              : make_error(ErrorCode::kInvalidArgument, "no descriptor came along");
    if (adopted.ok()) {
      granted = *adopted;
      session.handing_back = true;
      welcome.adopted = true;
      ++counters.arenas_adopted;
    } else {
      welcome.server += ": " + adopted.error().message;
      spdlog::warn("session {}: its arena was not taken back: {}", session.id,
                   adopted.error().message);
    }
  }
  if (!granted) {
    CKPT_ASSIGN(granted, staging->create(session.uid, message.arena_bytes, message.slab_bytes));
    *fd_to_send = granted->fd;
  }
  session.arena = granted->arena;
  welcome.arena_bytes = granted->layout.arena_bytes();
  welcome.slab_bytes = granted->layout.slab_bytes;
  welcome.slab_count = granted->layout.slab_count;
  welcome.warm_bytes = granted->warm_bytes;
  welcome.snapshot_slabs = staging->leasable(granted->arena);
  return {};
}

void Daemon::Impl::warm_memory() {
  if (draining || snapshots->open_count() > 0 || disk_wanted()) return;
  if (!warm_next) warm_next = turn.now() + limits::kWarmPoolPause;
  if (turn.now() >= *warm_next && !staging->warm()) warm_next = turn.now() + limits::kWarmPoolPause;
}

void Daemon::Impl::disconnected(SessionId id, const std::string& reason) {
  const std::optional<Session> session = sessions.remove(id);
  if (!session) return;
  Restores::Jobs restores = readers.session_lost(id);
  epochs.lost(id, reason);
  snapshots->disconnected(id);
  readers.close_lost(id, std::move(restores), [this, arena = session->arena] {
    if (arena) staging->session_ended(*arena);
  });
}

}  // namespace ckptd
