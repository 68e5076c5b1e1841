// Holds: the views that readers protect from removal, and for how long. Pure: the caller passes the
// time.
//
// A reader that needs several restores (an export, a diff) holds the view it reads, from before the
// first restore to after the last. A hold is a lease of one session. It ends when it is released,
// with the session, when the reader makes no progress for `lease`, or when root ends it. A view may
// have many holds. ckptd/retention/prune.h decides what a held view needs.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/limits.h"
#include "formats/base/result.h"

namespace ckptd {

using HoldId = uint64_t;

struct Holder {
  ckpt::SessionId session = 0;
  uid_t uid = 0;
  pid_t pid = 0;
  std::string client;       // the program's name, sent by itself
  bool privileged = false;  // root, or the daemon's own user
};

struct Hold {
  HoldId id = 0;
  Holder holder;
  ckpt::RunId run = 0;
  ViewPoint view;
  uint64_t since_ns = 0;                   // the wall clock, for people
  std::chrono::nanoseconds progress_at{};  // last progress of the reader
  // Held by a daemon job: exempt from the lease timeout.
  bool of_job = false;
};

class Holds {
 public:
  struct Bounds {
    size_t per_session = limits::kHoldsPerSessionMax;
    size_t per_user = limits::kHoldsPerUserMax;
    size_t all = limits::kHoldsMax;
    size_t reserved = limits::kHoldsReserved;  // of these, for root and the daemon's own user
    std::chrono::nanoseconds lease = limits::kHoldLease;
    // Longest time between two checks that counts against a lease. A loop with longer gaps was
    // stalled, and has not read the messages of its readers meanwhile.
    std::chrono::nanoseconds stall = std::chrono::seconds(10);
  };
  explicit Holds(Bounds bounds) : bounds_(bounds) {}
  Holds() : Holds(Bounds()) {}

  // Adds the hold and assigns its id. kResourceExhausted names the limit and who reached it.
  ckpt::Result<HoldId> take(Hold hold);
  // False: the session has no such hold.
  bool release(ckpt::SessionId session, HoldId id);
  bool renew(ckpt::SessionId session, HoldId id, std::chrono::nanoseconds now);
  // The session reads: renews all its holds.
  void progress(ckpt::SessionId session, std::chrono::nanoseconds now);

  // Each ends some holds, and returns them: the caller notifies living sessions. end_overdue()
  // first extends every lease by the time since its last call beyond `stall`.
  std::vector<Hold> end_overdue(std::chrono::nanoseconds now);
  std::vector<Hold> end_session(ckpt::SessionId session);
  std::vector<Hold> end_if(const std::function<bool(const Hold&)>& which);

  std::vector<Hold> of_run(ckpt::RunId run) const;  // oldest first
  const std::map<HoldId, Hold>& all() const { return holds_; }
  std::chrono::nanoseconds lease() const { return bounds_.lease; }

 private:
  const Bounds bounds_;
  std::map<HoldId, Hold> holds_;
  HoldId next_ = 1;
  std::optional<std::chrono::nanoseconds> checked_at_;  // last call of end_overdue()
};

// "ckptctl (process 17, user 0)".
std::string describe(const Holder& holder);

}  // namespace ckptd
