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

// An arena that cannot be adopted is replaced by a new one: the trainer goes on, and `server` tells
// it why its snapshots in progress are lost.
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
  return {};
}

void Daemon::Impl::warm_memory() {
  if (draining || !open_snapshots.empty() || disk_wanted()) return;
  if (!warm_next) warm_next = turn.now() + limits::kWarmPoolPause;
  if (turn.now() >= *warm_next && !staging->warm()) warm_next = turn.now() + limits::kWarmPoolPause;
}

void Daemon::Impl::disconnected(SessionId id, const std::string& reason) {
  const std::optional<Session> session = sessions.remove(id);
  if (!session) return;
  SessionWork work = std::move(session_work[id]);
  session_work.erase(id);
  if (groups.would_lose(id)) ++counters.members_lost;
  holds.end_session(id);
  carry_out(groups.lost(id, reason));
  for (auto& [key, open] : open_snapshots) open.shares.erase(id);
  for (auto& [run, begins] : waiting_begins) {
    std::erase_if(begins, [id](const WaitingBegin& begin) { return begin.session == id; });
  }
  for (auto verify = verifies.begin(); verify != verifies.end();) {
    if (verify->second.session == id) {
      close_job(std::move(verify->second.job), {});
      verify = verifies.erase(verify);
    } else {
      ++verify;
    }
  }
  reader_gone();
  if (!session->arena) return;
  // The arena is released when no restore reads into it any more.
  const auto left = std::make_shared<size_t>(work.restores.size());
  const auto end_arena = [this, arena = *session->arena] { staging->session_ended(arena); };
  if (*left == 0) return end_arena();
  for (auto& [restore_id, restore] : work.restores) {
    close_job(std::move(restore.job), [left, end_arena] {
      if (--*left == 0) end_arena();
    });
  }
}

}  // namespace ckptd
