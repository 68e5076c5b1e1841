// Admission: the allow-list for sessions, and quotas that keep one user from locking out others.
// Pure: the server reports sessions to it, and asks it before serving a client.
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
  // `own`: the user of the daemon. This user and root need no place on the list.
  Admission(uid_t own, std::vector<uid_t> allowed) : own_(own), allowed_(std::move(allowed)) {}

  // Counts the session from now on, or refuses it. kPermissionDenied: the user is not on the list;
  // kResourceExhausted: too many sessions.
  ckpt::Status admit(ckpt::SessionId session, uid_t uid);
  void ended(ckpt::SessionId session);  // no effect if it was not admitted

  bool may_connect(uid_t uid) const;
  // Root, or the daemon's own user.
  bool privileged(uid_t uid) const { return uid == 0 || uid == own_; }

 private:
  const uid_t own_;
  const std::vector<uid_t> allowed_;
  std::map<ckpt::SessionId, uid_t> sessions_;
  std::map<uid_t, size_t> of_user_;
};

// Rate limit for log lines that a client can trigger: the first few of a period are logged, the
// others only counted.
class RepeatedWarning {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // True if this line is to be logged.
  bool say(Time now);
  // Number of lines left out in a finished period, to be logged once. 0: none, or not finished yet.
  uint64_t left_out(Time now);

 private:
  Time began_;
  size_t warnings_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace ckptd
