// Epochs: the coordinator of a change of members. Executes the decisions of Groups (pure).
//
// Opening an epoch aborts every snapshot of the run that is not staged. If a resume point has to be
// chosen, the staged snapshots are settled first. Survivors that keep their state need no resume
// point, and their staged snapshots are written meanwhile. Then the epoch is recorded, and only
// then are members notified.
//
// Owns the groups of all runs and the epochs that wait to open. Loop thread; nothing to close: an
// epoch that is being recorded ends with the journal's callback. After a failed write the joining
// ranks get the error, and may join again.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/group/group.h"
#include "ckptd/history/history.h"
#include "ckptd/history/run_gate.h"
#include "ckptd/loop/turn.h"
#include "ckptd/sessions/replies.h"
#include "ckptd/sessions/session.h"
#include "ckptd/staging/staging.h"

namespace ckptd {

class Epochs {
 public:
  struct Needs {
    History& history;
    const Turn& turn;
    const Replies& replies;
    Sessions& sessions;
    RunGate& gate;
    std::function<Staging&()> staging;  // built after this
    std::function<bool()> is_draining;
    std::function<bool(ckpt::RunId)> has_open_snapshots;
    // Aborts the run's snapshots that are not staged: staged ones commit, or fail by themselves.
    std::function<void(ckpt::RunId, const ckpt::Error&)> abort_unstaged;
    std::function<void(ckpt::RunId, ckpt::Epoch, ckpt::Rank, const std::string&)> member_gone;
    // An epoch that waited for a change of its run's history may be written now.
    std::function<void()> on_may_open;
    std::function<void(ckpt::RunId, ckpt::Epoch)> on_ended;  // before members are notified
    std::function<void()> on_members_changed;                // after they are notified
    std::function<void(ckpt::RunId)> on_opened;              // before members are notified
    std::function<void()> on_rejoins_over;
  };
  struct Counters {
    uint64_t opened = 0;
    uint64_t ended = 0;
    uint64_t members_lost = 0;
  };
  explicit Epochs(Needs needs) : needs_(std::move(needs)) {}
  Epochs(const Epochs&) = delete;
  Epochs& operator=(const Epochs&) = delete;

  // -- messages ----------------------------------------------------------------------------------
  void join(Session& session, const ckpt::fb::JoinGroupT& message);
  void leave(const Session& session);
  // A member of the last epoch, after a restart of the daemon.
  void rejoin(const Session& session, const ckpt::fb::RejoinEpochT& message);
  void kv_set(const Session& session, ckpt::fb::KvSetT& message);
  void kv_get(const Session& session, const ckpt::fb::KvGetT& message);
  // Answer to query `join`: whether the session's own join waits, and why.
  QueryAnswer query_join(const Session& session) const;

  // -- events ------------------------------------------------------------------------------------
  void tick(Time now) { execute(groups_.tick(now)); }
  // Ends the wait for members from before a restart once its deadline is over, counted from the
  // first call: members cannot rejoin while the store is being recovered.
  void tick_rejoins(Time now);
  // The session died, or its connection did.
  void lost(ckpt::SessionId session, const std::string& reason);
  // Snapshots or deletions have ended: epochs that waited for them may open.
  void retry_waiting();

  // Recovery, before any session exists.
  Groups& groups_for_recovery() { return groups_; }
  const Groups& groups() const { return groups_; }
  bool rejoins_over() const { return rejoins_over_; }
  const Counters& counters() const { return counters_; }

 private:
  void execute(const Groups::Actions& actions);
  void execute(const Groups::EndEpoch& ended);
  void execute(const Groups::OpenEpoch& open);
  void execute(const Groups::JoinersWaiting& waiting);
  void try_open(ckpt::RunId run);
  void write(const Groups::OpenEpoch& open, const std::optional<ViewPoint>& resume,
             const RunInfo& info);
  void opened(const Groups::OpenEpoch& open, const ckpt::fb::EpochOpenedT& record,
              const Status& status);
  void announce_opened(const Groups::OpenEpoch& open, const ckpt::fb::EpochOpenedT& record) const;
  void drop_other_memory(ckpt::RunId run, const std::optional<ViewPoint>& resume);
  std::string describe_holder(ckpt::RunId run, const JoinRequest& request) const;
  void log_waiting_join(const Session& asker, const JoinRequest& request);

  const Needs needs_;
  Groups groups_;
  std::map<ckpt::RunId, Groups::OpenEpoch> opening_;  // wait for snapshots or a prune
  std::optional<Time> serving_since_;                 // the first tick
  bool rejoins_over_ = false;
  Counters counters_;
};

}  // namespace ckptd
