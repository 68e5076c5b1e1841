// Private to this folder: the state of Groups.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/group/group.h"
#include "ckptd/group/rendezvous.h"

namespace ckptd {

using ckpt::Epoch;
using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::LineageId;
using ckpt::make_error;
using ckpt::Rank;
using ckpt::RunId;
using ckpt::SessionId;

// A slot of the current epoch.
enum class Slot : uint8_t { kHeld, kAwaited /* after a daemon restart */, kLeft };

struct Current {
  Epoch epoch = 0;
  LineageId lineage = 0;
  std::vector<Slot> slots;  // by rank
  std::vector<SessionId> sessions;
  Rendezvous rendezvous;
  // Only for an elastic group:
  bool elastic = false;
  std::vector<MemberId> members;                   // by rank
  std::optional<std::chrono::milliseconds> grace;  // none: lost in a daemon restart
};

// An elastic group between two epochs: members of the last epoch that are not known to be lost.
struct Between {
  struct Survivor {
    Rank previous_rank = 0;
    SessionId session = 0;  // 0: not seen since the daemon restart
    std::optional<JoinRequest> asked;
  };
  uint32_t previous_size = 0;
  std::optional<std::chrono::milliseconds> grace;  // none: until a survivor asks
  std::map<MemberId, Survivor> survivors;
  std::optional<std::chrono::nanoseconds> since;  // the first tick
  std::string timed_out;
};

struct Run {
  Epoch last_epoch = 0;
  std::optional<Current> current;            // null if no epoch is open
  std::map<Rank, JoinRequest> joining;       // waiting for the next epoch
  std::optional<Groups::OpenEpoch> opening;  // its record is being written
  std::map<Rank, std::string> lost_while_opening;
  std::optional<Between> between;           // kept until the next epoch is open
  std::map<MemberId, JoinRequest> joiners;  // for the elastic group that lives, or forms again
  // Members of the ended elastic epoch that ask for their own places, without their state.
  std::map<MemberId, JoinRequest> returning;
  // True if survivors of the elastic group continued in some epoch: the group may then have fewer
  // ranks than at its start. The record of each epoch keeps it for the next daemon.
  bool survivors_continued = false;

  bool in_use() const {
    return current || opening || between || !joining.empty() || !joiners.empty() ||
           !returning.empty();
  }
  bool trained() const {
    if (opening || !joining.empty() || !joiners.empty() || !returning.empty()) return true;
    if (current && std::ranges::find(current->slots, Slot::kHeld) != current->slots.end()) {
      return true;
    }
    return between && std::ranges::any_of(between->survivors, [](const auto& survivor) {
             return survivor.second.session != 0;
           });
  }
  // True if an elastic group lives, whose survivors continue in the next epoch.
  bool lives() const {
    return (current && current->elastic) || between || (opening && opening->elastic);
  }
  // True if another session waits under the request's member number, or is a member of the epoch
  // being opened. A session that only waits for a living elastic group does not count: its newest
  // request replaces the old one.
  bool member_number_in_use(const JoinRequest& request) const {
    const auto other = [&request](const JoinRequest& its) {
      return its.elastic && its.member == request.member && its.session != request.session;
    };
    const auto waits = [&other](const auto& entry) { return other(entry.second); };
    if (std::ranges::any_of(joining, waits) || std::ranges::any_of(returning, waits)) return true;
    return opening && std::ranges::any_of(opening->members, [&](const JoinRequest& its) {
             return other(its) && !lost_while_opening.contains(its.rank);
           });
  }
  // True if this session will be notified when the epoch is open.
  bool opens_for(SessionId session) const {
    return opening && std::any_of(opening->members.begin(), opening->members.end(),
                                  [&](const JoinRequest& member) {
                                    return member.session == session &&
                                           !lost_while_opening.contains(member.rank);
                                  });
  }
};

struct Groups::Impl {
  std::map<RunId, Run> runs;
  std::map<SessionId, Member> sessions;

  // Ends the current epoch of the run; adds the notifications of its members to `actions`.
  void end(RunId id, Run& run, const std::vector<Rank>& lost, const std::string& reason,
           Actions& actions);
  // Puts a valid request into the queue where it belongs.
  void sort_in(RunId id, Run& run, const JoinRequest& request, Actions& actions);
  // Joins the run's first epoch, or the next one of a non-elastic group.
  void join_ranks(RunId id, Run& run, JoinRequest request, Actions& actions);
  // Opens the next epoch if nothing prevents it.
  void try_open(RunId id, Run& run, Actions& actions);
  void leave_current(RunId id, Run& run, const Member& member, const std::string& how, bool ends,
                     Actions& actions);
  void drop_joins(SessionId session);
  // Removes the session from all queues, and ends its current epoch.
  void drop(SessionId session, const std::string& reason, Actions& actions);
  // Ends an epoch from before a daemon restart of which no member has been seen since, if the
  // request starts a new job (begin, not continue). Its survivors are then not awaited.
  void end_unseen(RunId id, Run& run, ResumeMode resume, Actions& actions);

  // group_elastic.cc
  void join_elastic(RunId id, Run& run, const JoinRequest& request, Actions& actions);
  // False: the request is not from a survivor.
  bool join_survivor(RunId id, Run& run, const JoinRequest& request, Actions& actions);
  void add_joiner(RunId id, Run& run, const JoinRequest& request, Actions& actions);
  bool replaces(RunId id, Run& run, const JoinRequest& request, Actions& actions);
  static void begin_between(Run& run, const std::vector<Rank>& lost);
  void lose_survivor(SessionId session, Actions& actions);
  void refused_to_open(RunId id, Run& run, const Groups::OpenEpoch& open);
  void try_open_elastic(RunId id, Run& run, Actions& actions);
  void open_continued(RunId id, Run& run, Actions& actions);
  static void announce_joiners(const Run& run, Actions& actions);
  bool joins(SessionId session) const;
  // group_return.cc
  void add_returning(RunId id, Run& run, const JoinRequest& request, Actions& actions);
  void open_returning(RunId id, Run& run, Actions& actions);
  bool is_former(RunId id, const Run& run, const JoinRequest& request) const;
  bool former_members_wait(RunId id, const Run& run) const;
  void yield_to_former(RunId id, Run& run, const JoinRequest& request) const;
  void fill_places(RunId id, Run& run, Actions& actions);
  bool must_reform(RunId id, const Run& run, const JoinRequest& request) const;
  void reform(RunId id, Run& run, std::chrono::milliseconds grace);
  bool waits_behind_former(RunId id, const Run& run, const JoinRequest& request) const;
  // Removes the session from the epoch being opened, if it is a member.
  void lost_while_opening(SessionId session, const std::string& how);
};

// True if both requests can be in one epoch.
bool agree(const JoinRequest& a, const JoinRequest& b);
// The answer to a request with the member number of another session.
Groups::Refuse number_taken(const JoinRequest& request);

}  // namespace ckptd
