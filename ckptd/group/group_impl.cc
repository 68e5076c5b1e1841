// Helpers of the events in group.cc: ending epochs, removing members, opening the next epoch.
#include "ckptd/group/group_impl.h"

namespace ckptd {

void Groups::Impl::end(RunId id, Run& run, const std::vector<Rank>& lost, const std::string& reason,
                       Actions& actions) {
  Current& current = *run.current;
  EndEpoch ended{
      .run = id, .epoch = current.epoch, .lost = lost, .remaining = {}, .reason = reason};
  for (size_t rank = 0; rank < current.slots.size(); ++rank) {
    if (current.slots[rank] != Slot::kHeld) continue;
    ended.remaining.push_back(current.sessions[rank]);
    sessions.at(current.sessions[rank]).active = false;
  }
  const Epoch epoch = current.epoch;
  const auto waiters = current.rendezvous.take_waiters();
  if (current.elastic) begin_between(run, lost);
  run.current.reset();
  // Report the end first, then the aborts: a client that learns of an abort can ask at once which
  // ranks are lost.
  actions.emplace_back(std::move(ended));
  for (const Rendezvous::Waiter& waiter : waiters) {
    actions.emplace_back(
        Refuse{.session = waiter.session,
               .request = waiter.request,
               .error = make_error(ErrorCode::kAborted, "epoch {} has ended: {}", epoch, reason)});
  }
}

void Groups::Impl::try_open(RunId id, Run& run, Actions& actions) {
  if (run.current || run.opening) return;
  try_open_elastic(id, run, actions);
  if (run.opening || run.between || run.joining.empty()) return;
  const uint32_t size = run.joining.begin()->second.size;
  if (run.joining.size() != size) return;  // all joins agree on the size, so ranks are 0..size-1
  OpenEpoch open;
  open.run = id;
  open.epoch = run.last_epoch + 1;
  open.resume = run.joining.begin()->second;
  open.elastic = open.resume.elastic;
  for (const auto& [rank, request] : run.joining) {
    if (request.resume != ResumeMode::kContinue) open.resume = request;
    open.members.push_back(request);
  }
  const bool all_former = std::ranges::all_of(open.members, [&](const JoinRequest& member) {
    const auto its = sessions.find(member.session);
    return its != sessions.end() && its->second.run == id && its->second.epoch == run.last_epoch;
  });
  open.survivors_had_continued = open.elastic && run.survivors_continued && all_former;
  run.joining.clear();
  run.opening = open;
  actions.emplace_back(std::move(open));
}

// Empties the member's slot in the current epoch.
void Groups::Impl::leave_current(RunId id, Run& run, const Member& member, const std::string& how,
                                 bool ends, Actions& actions) {
  actions.emplace_back(
      MemberGone{.run = id, .epoch = member.epoch, .rank = member.rank, .how = how});
  if (!member.active) return;
  Current& current = *run.current;
  current.slots[member.rank] = Slot::kLeft;
  current.rendezvous.forget(current.sessions[member.rank]);
  if (ends) {
    end(id, run, {member.rank}, fmt::format("rank {}: {}", member.rank, how), actions);
  } else if (std::all_of(current.slots.begin(), current.slots.end(),
                         [](Slot slot) { return slot == Slot::kLeft; })) {
    run.current.reset();
  }
}

void Groups::Impl::drop_joins(SessionId session) {
  for (auto& [id, run] : runs) {
    const auto its = [&](const auto& entry) { return entry.second.session == session; };
    std::erase_if(run.joining, its);
    std::erase_if(run.joiners, its);
    std::erase_if(run.returning, its);
  }
}

void Groups::Impl::drop(SessionId session, const std::string& reason, Actions& actions) {
  drop_joins(session);
  lost_while_opening(session, reason);
  lose_survivor(session, actions);
  const auto found = sessions.find(session);
  if (found == sessions.end()) return;
  const RunId id = found->second.run;
  leave_current(id, runs[id], found->second, reason, true, actions);
  found->second.active = false;
  try_open(id, runs[id], actions);
}

void Groups::Impl::end_unseen(RunId id, Run& run, ResumeMode resume, Actions& actions) {
  if (!run.current || !run.current->elastic) return;
  if (resume == ResumeMode::kContinue || resume == ResumeMode::kKeepState) return;
  const std::vector<Slot>& slots = run.current->slots;
  if (std::ranges::find(slots, Slot::kHeld) != slots.end()) return;
  std::vector<Rank> lost;
  for (Rank rank = 0; rank < slots.size(); ++rank) {
    if (slots[rank] == Slot::kAwaited) lost.push_back(rank);
  }
  end(id, run, lost, "a new job begins, and no member came back after the daemon was restarted",
      actions);
}

bool Groups::Impl::joins(SessionId session) const {
  for (const auto& [id, run] : runs) {
    for (const auto& [rank, request] : run.joining) {
      if (request.session == session) return true;
    }
    for (const auto* members : {&run.joiners, &run.returning}) {
      for (const auto& [member, request] : *members) {
        if (request.session == session) return true;
      }
    }
    if (run.between) {
      for (const auto& [member, survivor] : run.between->survivors) {
        if (survivor.asked && survivor.session == session) return true;
      }
    }
    if (run.opens_for(session)) return true;
  }
  return false;
}

void Groups::Impl::lost_while_opening(SessionId session, const std::string& how) {
  for (auto& [id, run] : runs) {
    if (!run.opens_for(session)) continue;
    for (const JoinRequest& member : run.opening->members) {
      if (member.session == session) run.lost_while_opening.emplace(member.rank, how);
    }
  }
}

}  // namespace ckptd
