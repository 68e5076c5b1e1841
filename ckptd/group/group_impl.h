// What Groups keeps, for the sources of this folder only.
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
  // Of an elastic group.
  bool elastic = false;
  std::vector<MemberId> members;                   // by rank
  std::optional<std::chrono::milliseconds> grace;  // none: forgotten in a restart of the daemon
};

// An elastic group between two epochs: those members of the last one that are not known to be lost.
struct Between {
  struct Survivor {
    Rank previous_rank = 0;
    SessionId session = 0;  // 0: not seen since the daemon was restarted
    std::optional<JoinRequest> asked;
  };
  uint32_t previous_size = 0;
  std::optional<std::chrono::milliseconds> grace;  // none: until somebody asks
  std::map<MemberId, Survivor> survivors;
  std::optional<std::chrono::nanoseconds> since;  // the first tick
  std::string given_up;
};

struct Run {
  Epoch last_epoch = 0;
  std::optional<Current> current;            // only while the epoch goes on
  std::map<Rank, JoinRequest> joining;       // waits for the next epoch
  std::optional<Groups::OpenEpoch> opening;  // its record is being written
  std::map<Rank, std::string> lost_while_opening;
  std::optional<Between> between;           // kept until the next epoch is open
  std::map<MemberId, JoinRequest> joiners;  // of the elastic group that lives, or is formed again
  // Members of the elastic epoch that ended: they ask for their own places, without their state.
  std::map<MemberId, JoinRequest> returning;
  // The elastic group has had an epoch in which survivors went on: its ranks need not be as many as
  // it began with. After a restart of the daemon it is known of the last epoch alone: not where
  // the group has returned to a view since.
  bool has_gone_on = false;

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
  // Does an elastic group live, in whose next epoch survivors go on?
  bool lives() const {
    return (current && current->elastic) || between || (opening && opening->elastic);
  }
  // Does another session wait under the request's member number, or will it be in the epoch that
  // is being opened? One that only waits for an elastic group that lives does not count: its newest
  // request replaces it.
  bool asks_as(const JoinRequest& request) const {
    const auto other = [&request](const JoinRequest& its) {
      return its.elastic && its.member == request.member && its.session != request.session;
    };
    const auto waits = [&other](const auto& entry) { return other(entry.second); };
    if (std::ranges::any_of(joining, waits) || std::ranges::any_of(returning, waits)) return true;
    return opening && std::ranges::any_of(opening->members, [&](const JoinRequest& its) {
             return other(its) && !lost_while_opening.contains(its.rank);
           });
  }
  // Will this session be told when the epoch is open?
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

  // Ends the current epoch of the run and gives back what its members must be told.
  void end(RunId id, Run& run, const std::vector<Rank>& lost, const std::string& reason,
           Actions& actions);
  // Decides behind whom a valid request waits.
  void sort_in(RunId id, Run& run, const JoinRequest& request, Actions& actions);
  // The run's first epoch, or the next one of a group that is not elastic.
  void join_ranks(RunId id, Run& run, JoinRequest request, Actions& actions);
  // Opens the next epoch if nothing is in its way.
  void try_open(RunId id, Run& run, Actions& actions);
  void leave_current(RunId id, Run& run, const Member& member, const std::string& how, bool ends,
                     Actions& actions);
  void drop_joins(SessionId session);
  // Nobody waits for it any more, and the epoch that it is in ends.
  void drop(SessionId session, const std::string& reason, Actions& actions);
  // Members from before a restart of the daemon, none of which has been seen since: to begin, and
  // not to continue, is what a new job asks for. Survivors are not waited for then.
  void end_unseen(RunId id, Run& run, ResumeMode resume, Actions& actions);

  // group_elastic.cc
  void join_elastic(RunId id, Run& run, const JoinRequest& request, Actions& actions);
  // False: it is no survivor.
  bool go_on(RunId id, Run& run, const JoinRequest& request, Actions& actions);
  void add_joiner(RunId id, Run& run, const JoinRequest& request, Actions& actions);
  bool replaces(RunId id, Run& run, const JoinRequest& request, Actions& actions);
  static void begin_between(Run& run, const std::vector<Rank>& lost);
  void lose_survivor(SessionId session, Actions& actions);
  void refused_to_open(RunId id, Run& run, const Groups::OpenEpoch& open);
  void try_open_elastic(RunId id, Run& run, Actions& actions);
  void open_going_on(RunId id, Run& run, Actions& actions);
  static void tell_joiners(const Run& run, Actions& actions);
  bool joins(SessionId session) const;
  // group_return.cc
  void add_returning(RunId id, Run& run, const JoinRequest& request, Actions& actions);
  void open_returning(RunId id, Run& run, Actions& actions);
  bool is_former(RunId id, const Run& run, const JoinRequest& request) const;
  bool former_members_wait(RunId id, const Run& run) const;
  void make_way_for_former(RunId id, Run& run, const JoinRequest& request) const;
  void fill_places(RunId id, Run& run, Actions& actions);
  bool forms_again(RunId id, const Run& run, const JoinRequest& request) const;
  void form_again(RunId id, Run& run, std::chrono::milliseconds grace);
  bool waits_behind_former(RunId id, const Run& run, const JoinRequest& request) const;
  // It will not be in the epoch that is being opened, if it was to be.
  void lost_while_opening(SessionId session, const std::string& how);
};

// Can both be in one epoch?
bool agree(const JoinRequest& a, const JoinRequest& b);
// The answer to a request under the member number of another session.
Groups::Refuse number_taken(const JoinRequest& request);

}  // namespace ckptd
