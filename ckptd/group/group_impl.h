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
};

struct Run {
  Epoch last_epoch = 0;
  std::optional<Current> current;            // only while the epoch goes on
  std::map<Rank, JoinRequest> joining;       // waits for the next epoch
  std::optional<Groups::OpenEpoch> opening;  // its record is being written
  std::map<Rank, std::string> lost_while_opening;

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
  // Opens the next epoch if nothing is in its way.
  void try_open(RunId id, Run& run, Actions& actions);
  void leave_current(RunId id, Run& run, const Member& member, const std::string& how, bool ends,
                     Actions& actions);
  void drop_joins(SessionId session);
  bool joins(SessionId session) const;
  // It will not be in the epoch that is being opened, if it was to be.
  void lost_while_opening(SessionId session, const std::string& how);
};

}  // namespace ckptd
