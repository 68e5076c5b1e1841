// Session: a connected client, as its greeting and its registration describe it. The modules of
// snapshots, restores, holds and groups own their state of the session.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

#include "ckptd/loop/turn.h"
#include "ckptd/staging/staging.h"
#include "formats/base/ids.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

struct Session {
  ckpt::SessionId id = 0;
  uid_t uid = 0;
  pid_t pid = 0;
  bool greeted = false;
  uint32_t protocol = 0;  // protocol version of its messages, once greeted
  ckpt::fb::SessionKind kind = ckpt::fb::SessionKind::Control;
  std::string client;
  Time connected_at{};
  bool wait_logged = false;  // the log has reported that another session waits for its place
  std::string run_name;
  ckpt::fb::AlarmPolicy alarms = ckpt::fb::AlarmPolicy::Off;  // its own, or the default
  std::optional<ckpt::RunId> run;                             // once registered
  std::optional<ArenaId> arena;
  bool handing_back = false;  // its arena is from the last daemon: seals may precede leases
};

// Sessions: all connected clients, by id. Loop thread only.
class Sessions {
 public:
  Session& add(ckpt::SessionId id, uid_t uid, pid_t pid, Time now) {
    Session& added = sessions_[id];
    added.id = id;
    added.uid = uid;
    added.pid = pid;
    added.connected_at = now;
    return added;
  }
  // Null: not connected.
  Session* find(ckpt::SessionId id) {
    const auto found = sessions_.find(id);
    return found == sessions_.end() ? nullptr : &found->second;
  }
  const Session* find(ckpt::SessionId id) const {
    const auto found = sessions_.find(id);
    return found == sessions_.end() ? nullptr : &found->second;
  }
  bool contains(ckpt::SessionId id) const { return sessions_.contains(id); }
  std::optional<Session> remove(ckpt::SessionId id) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return std::nullopt;
    Session removed = std::move(found->second);
    sessions_.erase(found);
    return removed;
  }
  const std::map<ckpt::SessionId, Session>& all() const { return sessions_; }
  std::map<ckpt::SessionId, Session>& all() { return sessions_; }
  size_t size() const { return sessions_.size(); }

 private:
  std::map<ckpt::SessionId, Session> sessions_;
};

}  // namespace ckptd
