// ReaderHolds: views that readers protect from removal, from their first restore to their last.
// Serves the messages about holds, and notifies sessions whose holds end. The rules of holds are
// pure, in ckptd/holds/. Holds live in memory only: after a restart of ckptd clients ask again.
// Loop thread; has nothing to close.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ckptd/history/history.h"
#include "ckptd/holds/holds.h"
#include "ckptd/loop/turn.h"
#include "ckptd/query/query.h"
#include "ckptd/retention/prune.h"
#include "ckptd/sessions/replies.h"
#include "ckptd/sessions/session.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

class ReaderHolds {
 public:
  struct Needs {
    History& history;
    const Turn& turn;
    const Replies& replies;
    std::function<bool()> is_draining;
    // True while deletions of the run's commits are being written to the journal: the catalog does
    // not show them yet, and a hold would be too late for them.
    std::function<bool(ckpt::RunId)> removes_commits;
  };
  struct Counters {
    uint64_t overdue = 0;  // ended because their readers made no progress
    uint64_t forced = 0;   // ended by root
  };
  explicit ReaderHolds(Needs needs) : needs_(std::move(needs)) {}

  void hold(const Session& session, const ckpt::fb::HoldCommitT& message);
  void renew(const Session& session, const ckpt::fb::RenewHoldT& message);
  void release(ckpt::SessionId session, HoldId hold) { holds_.release(session, hold); }
  // Holds a view until its verify has ended. A verify of whole runs needs no hold, because it skips
  // commits that are removed meanwhile. 0: no hold.
  Result<HoldId> hold_verified(const Session& session, const VerifyTarget& target);
  // The session reads: renews all its holds.
  void progress(ckpt::SessionId session) { holds_.progress(session, needs_.turn.now()); }
  void end_overdue();
  // Ends the holds of commits that root removes by force.
  void end_by_force(const Session& session, const std::function<bool(const Hold&)>& which);
  void session_lost(ckpt::SessionId session) { holds_.end_session(session); }

  std::vector<HeldView> views(ckpt::RunId run) const;
  const Holds& held() const { return holds_; }
  const Counters& counters() const { return counters_; }

 private:
  Status may_hold(const RunInfo& run) const;
  Result<Hold> resolve(const Session& session, const ckpt::fb::HoldCommitT& message);
  void announce_ended(const std::vector<Hold>& ended, const std::string& reason);

  const Needs needs_;
  Holds holds_;
  Counters counters_;
};

}  // namespace ckptd
