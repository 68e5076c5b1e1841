// Groups: the ranks of a run that train together, their epoch, and the view from which they start.
//
// Pure: events in, actions out. An epoch opens when ranks 0..size-1 have all joined and asked
// for the same resume point. kContinue adopts the others' resume point: a rank sends it after
// a failure, and may meet ranks that are still at their first start. Opening has two steps.
// The daemon settles or aborts every open snapshot of the run, then writes the epoch record
// (with the one resume point) to the journal. The members are notified only when the record is
// durable.
//
// An epoch ends when a member is lost, when a member asks for the next epoch, or when a process
// asks to join as a rank without a connected holder. The others are notified at once and join the
// next epoch. A join as a held rank waits until the holder is gone. A member that asks for the next
// epoch and is refused is in none. After a daemon restart members rejoin their epoch. Members that
// have not rejoined by a deadline are lost; if a new job begins before any rejoin, all are lost.
//
// A run is trained by one job at a time (group_jobs.cc): a process of another job is refused while
// a connected session of the first job is in the run's group, or asks to be. Processes without a
// job number are neither refused nor protected.
//
// An elastic group differs from its second epoch on: no rank rewinds, and no rank waits for lost
// ranks (group_elastic.cc). When an epoch ends, its members that are neither lost nor gone are
// the survivors. The next epoch opens as soon as each survivor has asked to continue; a survivor
// that does not ask in time is dropped. Ranks are renumbered without gaps, in the old order;
// processes without state that have asked to join follow behind. During an epoch, joining ranks
// wait; members learn their number, and admit them by asking to continue. A member without state
// rejoins from its own session when its epoch ends. A group without survivors is gone, and opens
// from a view like any other: first its former members (group_return.cc), then waiting
// processes.
// Not thread-safe: loop thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "formats/base/ids.h"
#include "formats/base/result.h"

namespace ckptd {

using ckpt::Result;
using ckpt::Status;

enum class ResumeMode : uint8_t {
  kStart = 0,
  kLatest = 1,
  kAtStep = 2,
  kContinue = 3,
  kKeepState = 4
};
// Identifies a process of an elastic group; the process chooses the number and keeps it.
using MemberId = uint64_t;
// All processes of one job send the same random number; 0: the client sends none.
using JobId = uint64_t;

struct JoinRequest {
  ckpt::SessionId session = 0;
  uint64_t request = 0;  // returned in the answer
  ckpt::Rank rank = 0;
  uint32_t size = 0;
  ResumeMode resume = ResumeMode::kStart;
  ckpt::LineageId resume_lineage = 0;  // for kAtStep; 0: the current one
  ckpt::Step resume_step = 0;          // for kAtStep
  bool elastic = false;
  MemberId member = 0;                // in an elastic group
  std::chrono::milliseconds grace{};  // time for survivors to ask to continue; 0: the default
  JobId job = 0;
};

class Groups {
 public:
  // All have joined: settle snapshots, choose the resume point, write the record, then opened().
  struct OpenEpoch {
    ckpt::RunId run = 0;
    ckpt::Epoch epoch = 0;
    std::vector<JoinRequest> members;  // by rank
    JoinRequest resume;                // the one resume point: its resume fields count
    bool elastic = false;
    // Survivors continue in the same lineage, without a resume point.
    bool survivors_continue = false;
    // Without survivors_continue: former members return to a view, after survivors of their group
    // had continued in an earlier epoch. For the record.
    bool survivors_had_continued = false;
    std::vector<int32_t> previous_ranks;  // by rank, if survivors_continue; -1: joining rank
    uint32_t previous_size = 0;
    std::string timed_out;  // survivors that did not ask in time, for the record
  };
  // Answer this request (a join, or a get of the rendezvous) with the error.
  struct Refuse {
    ckpt::SessionId session = 0;
    uint64_t request = 0;
    ckpt::Error error;
  };
  // A member that seals nothing more in this epoch: lost, left, or on its way to the next one.
  struct MemberGone {
    ckpt::RunId run = 0;
    ckpt::Epoch epoch = 0;
    ckpt::Rank rank = 0;
    std::string how;  // "it died", "it left", ...
  };
  struct EndEpoch {  // tell the remaining members
    ckpt::RunId run = 0;
    ckpt::Epoch epoch = 0;
    std::vector<ckpt::Rank> lost;
    std::vector<ckpt::SessionId> remaining;
    std::string reason;
  };
  struct JoinersWaiting {  // tell the members of an elastic epoch
    ckpt::Epoch epoch = 0;
    uint32_t count = 0;
    std::vector<ckpt::SessionId> members;
  };
  struct KvAnswer {
    ckpt::SessionId session = 0;
    uint64_t request = 0;
    std::string key;
    std::vector<uint8_t> value;
  };
  using Action = std::variant<OpenEpoch, Refuse, MemberGone, EndEpoch, JoinersWaiting, KvAnswer>;
  using Actions = std::vector<Action>;

  Groups();
  ~Groups();

  // From the journal, at startup: the run's last epoch, whose members may rejoin. size 0: there
  // was none, or a clean stop recorded its end. `members`: of an elastic group, by rank; else
  // empty. `survivors_continued`: in this epoch, or an earlier one.
  void recovered(ckpt::RunId run, ckpt::Epoch epoch, uint32_t size, ckpt::LineageId lineage,
                 const std::vector<MemberId>& members = {}, bool survivors_continued = false);
  // Members of recovered epochs that have not rejoined yet are lost. An epoch without any rejoined
  // member ends silently.
  Actions rejoin_deadline_passed();

  Actions join(ckpt::RunId run, const JoinRequest& request);
  // A join was refused before it reached this class; the session has still left its epoch.
  Actions refused(ckpt::SessionId session);
  // Drops survivors whose time to ask has passed.
  Actions tick(std::chrono::nanoseconds now);
  // Answer to OpenEpoch: the record is durable and the members were notified, or it failed (then
  // all are refused with the error). Members lost in between end the epoch at once.
  Actions opened(ckpt::RunId run, ckpt::Epoch epoch, ckpt::LineageId lineage, const Status& status);
  // True if this session is a member of the epoch being opened, and has neither left nor died.
  bool opens_for(ckpt::RunId run, ckpt::SessionId session) const;
  // After a daemon restart. kAborted if that epoch is over, or another job has begun to train the
  // run; a session has one rank.
  Result<ckpt::LineageId> rejoin(ckpt::RunId run, ckpt::SessionId session, ckpt::Rank rank,
                                 ckpt::Epoch epoch, JobId job = 0);
  Actions leave(ckpt::SessionId session);                            // in good order
  Actions lost(ckpt::SessionId session, const std::string& reason);  // it or its connection died

  struct Member {
    ckpt::RunId run = 0;
    ckpt::Epoch epoch = 0;
    ckpt::Rank rank = 0;
    uint32_t size = 0;
    ckpt::LineageId lineage = 0;
    bool active = false;  // in the running epoch; otherwise it may still finish a seal
    bool left = false;    // in good order
    JobId job = 0;
    MemberId member = 0;     // in an elastic group
    bool timed_out = false;  // did not ask to continue in time, nor later
  };
  // The session's last epoch. Remains known after the epoch's end, until the session joins another.
  std::optional<Member> member(ckpt::SessionId session) const;
  // Connected sessions whose last epoch is this one.
  std::vector<ckpt::SessionId> members(ckpt::RunId run, ckpt::Epoch epoch) const;
  ckpt::Epoch last_epoch(ckpt::RunId run) const;
  // True if an epoch of the run is open, being opened or awaited, or its members may still rejoin.
  bool in_use(ckpt::RunId run) const;
  // True if members from before a daemon restart may rejoin, and none has yet.
  bool awaited(ckpt::RunId run) const;
  // The runs in use, each with its last opened epoch.
  std::vector<std::pair<ckpt::RunId, ckpt::Epoch>> epochs_in_use() const;
  // Runs with a connected session that is in an epoch, or asks for the next one. Members that may
  // still rejoin after a restart do not count: the job may have ended long ago.
  std::vector<ckpt::RunId> trained_runs() const;
  // True if the group loses a member when this session ends now. False for a session in no epoch,
  // or one that left cleanly.
  bool would_lose(ckpt::SessionId session) const;

  // The connected session, other than the requesting one, that holds the requested place: its rank,
  // or in an elastic group its member number. nullopt: none.
  std::optional<ckpt::SessionId> holder(ckpt::RunId run, const JoinRequest& request) const;
  // A connected session of another job in the run's group, or asking to be: the reason to refuse a
  // join of this session and job. nullopt: there is none.
  std::optional<ckpt::SessionId> other_job(ckpt::RunId run, ckpt::SessionId session,
                                           JobId job) const;
  // Why this session's join is not answered yet; nullopt: it has no join.
  struct Wait {
    JoinRequest request;
    std::optional<ckpt::SessionId> holder;
    std::vector<ckpt::Rank> missing;  // ranks that have not joined
  };
  std::optional<Wait> wait(ckpt::SessionId session) const;

  // Rendezvous of the current epoch; its keys are dropped when the epoch ends. A get waits for its
  // key. An error answers the request itself.
  Result<Actions> kv_set(ckpt::SessionId session, ckpt::Epoch epoch, const std::string& key,
                         std::vector<uint8_t> value);
  Result<Actions> kv_get(ckpt::SessionId session, uint64_t request, ckpt::Epoch epoch,
                         const std::string& key);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd
