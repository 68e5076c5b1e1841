// Groups: which ranks of a run train together, in which epoch, and from which view they start.
//
// Pure: events in, actions out. An epoch opens when ranks 0..size-1 have all joined and asked for
// the same resume point (kContinue goes along with what the others ask for: it is what a rank says
// that comes back after a failure, and it may meet ranks that are still at their first start).
// Opening is two steps: the daemon settles or abandons every open snapshot of the run, then writes
// the epoch record (with the one resume point) to the journal; only when that is durable are the
// members told.
//
// An epoch ends when a member is lost, when a member asks for the next epoch, or when somebody asks
// to join as a rank that no connected session holds. The others are told at once and join the next
// one. A join as a rank that is held waits until the holder is gone. Who asks for the next epoch
// and is refused is in none. Losing the daemon is not a membership change: members rejoin theirs;
// those that have not by a deadline are lost, and all of them if a new job begins before any has.
//
// A run is trained by one job at a time (group_jobs.cc): a process of another job is refused while
// a connected session of the first one is in the run's group, or asks to be. Processes that give no
// job number are neither refused nor guarded.
//
// An elastic group differs from its second epoch on: nobody rewinds, and nobody waits for those who
// are lost (group_elastic.cc). When an epoch ends, its members that are neither lost nor gone are
// its survivors. The next epoch opens as soon as each of them has asked to go on; one that does not
// ask in time is given up. Ranks are numbered anew without gaps, in the old order; whoever else has
// asked to join by then (it has no state) follows behind. While an epoch lives, joiners wait, and
// the members are told how many: they let them in by asking to go on. A member that has no state
// yet joins anew, from its own session, when its epoch ends. With the last survivor the group is
// gone, and opens as any other, from a view: its former members first (group_return.cc), and
// whoever else waits joins them then.
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

enum class ResumeMode : uint8_t { kStart = 0, kLatest = 1, kAtStep = 2, kContinue = 3, kGoOn = 4 };
// Tells the processes of an elastic group apart; it chooses its own and keeps it.
using MemberId = uint64_t;
// All processes of one job give the same random number; 0: the client does not tell it.
using JobId = uint64_t;

struct JoinRequest {
  ckpt::SessionId session = 0;
  uint64_t request = 0;  // to be given back in the answer
  ckpt::Rank rank = 0;
  uint32_t size = 0;
  ResumeMode resume = ResumeMode::kStart;
  ckpt::LineageId resume_lineage = 0;  // of kAtStep; 0: the current one
  ckpt::Step resume_step = 0;          // of kAtStep
  bool elastic = false;
  MemberId member = 0;                // in an elastic group
  std::chrono::milliseconds grace{};  // that survivors have to ask to go on; 0: the default
  JobId job = 0;
};

class Groups {
 public:
  // Everybody is there: settle snapshots, choose the resume point, write the record, then opened().
  struct OpenEpoch {
    ckpt::RunId run = 0;
    ckpt::Epoch epoch = 0;
    std::vector<JoinRequest> members;  // by rank
    JoinRequest resume;                // the one resume point: its resume fields count
    bool elastic = false;
    // Survivors go on, in the same lineage: there is no resume point.
    bool goes_on = false;
    std::vector<int32_t> previous_ranks;  // by rank, where it goes on; -1: joins it
    uint32_t previous_size = 0;
    std::string given_up;  // who of them did not ask in time; for the record
  };
  // Answer this request (a join, or a get of the rendezvous) with the error.
  struct Refuse {
    ckpt::SessionId session = 0;
    uint64_t request = 0;
    ckpt::Error error;
  };
  // A member will seal nothing more for this epoch.
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

  // From the journal, at start: the run's last epoch, whose members may rejoin. size 0: it had
  // none yet, or it is known to be over: a clean stop told so. `members`: of an elastic group, by
  // rank; else empty. `went_on`: survivors went on in this epoch.
  void recovered(ckpt::RunId run, ckpt::Epoch epoch, uint32_t size, ckpt::LineageId lineage,
                 const std::vector<MemberId>& members = {}, bool went_on = false);
  // Members of recovered epochs that have not rejoined by now are lost. An epoch of which nobody
  // has come back is over without a word.
  Actions rejoin_deadline_passed();

  Actions join(ckpt::RunId run, const JoinRequest& request);
  // A join that never came here was refused; the session has left its epoch all the same.
  Actions refused(ckpt::SessionId session);
  // Gives up survivors whose time to ask is over.
  Actions tick(std::chrono::nanoseconds now);
  // Answer to OpenEpoch: the record is durable and the members were told, or it failed (then
  // everybody is refused with the error). Members lost in between end the epoch at once.
  Actions opened(ckpt::RunId run, ckpt::Epoch epoch, ckpt::LineageId lineage, const Status& status);
  // Is this session to be in the epoch that is being opened, and has neither left nor died since?
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
    bool active = false;  // the epoch goes on and it has not left; else it may still finish a seal
    bool left = false;    // in good order
    JobId job = 0;
    MemberId member = 0;    // in an elastic group
    bool given_up = false;  // it did not ask to go on in time, nor since
  };
  // Which epoch the session was last in. Outlives the end of the epoch, until it joins another.
  std::optional<Member> member(ckpt::SessionId session) const;
  // Connected sessions whose last epoch this is.
  std::vector<ckpt::SessionId> members(ckpt::RunId run, ckpt::Epoch epoch) const;
  ckpt::Epoch last_epoch(ckpt::RunId run) const;
  // An epoch of the run goes on, is being opened or waited for, or its members may still come back.
  bool in_use(ckpt::RunId run) const;
  // Members of before a restart of the daemon may come back, and none has yet.
  bool awaited(ckpt::RunId run) const;
  // The runs in use, each with its last epoch that was opened.
  std::vector<std::pair<ckpt::RunId, ckpt::Epoch>> epochs_in_use() const;
  // Runs of which a connected session is in an epoch, or asks for the next one. Members that may
  // still come back after a restart do not count: the job may long be over.
  std::vector<ckpt::RunId> trained_runs() const;
  // Is the group to lose a member if this session ends now? Not if it is in none, or left in good
  // order.
  bool would_lose(ckpt::SessionId session) const;

  // The connected session, other than its own, that holds the place `request` asks for: its rank,
  // or in an elastic group its member number. nullopt: nobody does.
  std::optional<ckpt::SessionId> holder(ckpt::RunId run, const JoinRequest& request) const;
  // A connected session of another job that is in the run's group, or asks to be: why a join of
  // this session and job is refused. nullopt: there is none.
  std::optional<ckpt::SessionId> other_job(ckpt::RunId run, ckpt::SessionId session,
                                           JobId job) const;
  // Why the join of this session is not answered yet; nullopt: it has none.
  struct Wait {
    JoinRequest request;
    std::optional<ckpt::SessionId> holder;
    std::vector<ckpt::Rank> missing;  // ranks that have not joined
  };
  std::optional<Wait> wait(ckpt::SessionId session) const;

  // Rendezvous of the current epoch; its keys are gone when it ends. A get waits for its key. An
  // error answers the request itself.
  Result<Actions> kv_set(ckpt::SessionId session, ckpt::Epoch epoch, const std::string& key,
                         std::vector<uint8_t> value);
  Result<Actions> kv_get(ckpt::SessionId session, uint64_t request, ckpt::Epoch epoch,
                         const std::string& key);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd
