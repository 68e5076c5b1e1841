// Who may have a session: the allow-list, and bounds that keep one user from locking out the
// others. Pure: the server counts with it who is there, and asks before it serves anybody.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "formats/base/ids.h"
#include "formats/base/result.h"

namespace ckptd {

class Admission {
 public:
  // `own`: the user the daemon runs as, who, like root, needs no place on the list.
  Admission(uid_t own, std::vector<uid_t> allowed) : own_(own), allowed_(std::move(allowed)) {}

  // The session is counted from now on, or is not to be. kPermissionDenied: not on the list;
  // kResourceExhausted: there are too many.
  ckpt::Status admit(ckpt::SessionId session, uid_t uid);
  void ended(ckpt::SessionId session);  // one that was not admitted changes nothing

  bool may_connect(uid_t uid) const;
  // Root, or the daemon's own.
  bool privileged(uid_t uid) const { return uid == 0 || uid == own_; }

 private:
  const uid_t own_;
  const std::vector<uid_t> allowed_;
  std::map<ckpt::SessionId, uid_t> sessions_;
  std::map<uid_t, size_t> of_user_;
};

// Lines of the log that a client can provoke as often as it likes: the first few of a period are
// said, the others counted.
class RepeatedWarning {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Is this one to be said?
  bool say(Time now);
  // How many were left out of a period that is over: to be said once. 0: none, or not over yet.
  uint64_t left_out(Time now);

 private:
  Time began_;
  size_t said_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace ckptd
