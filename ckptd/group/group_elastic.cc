// Elastic groups: the transition from an epoch to the next one, in which survivors continue.
#include "ckptd/group/group_impl.h"
#include "ckptd/limits.h"

namespace ckptd {

namespace {

std::optional<Rank> rank_of(const Current& current, MemberId member) {
  const auto found = std::find(current.members.begin(), current.members.end(), member);
  if (found == current.members.end()) return std::nullopt;
  return static_cast<Rank>(found - current.members.begin());
}

// A member of the current or the ended epoch asks for its rank in a group of the same
// size.
bool rejoins_own_rank(const Run& run, const JoinRequest& request) {
  if (run.opening) return false;
  if (run.current) {
    const Current& current = *run.current;
    if (rank_of(current, request.member) != request.rank) return false;
    return current.slots.size() == request.size && current.slots[request.rank] != Slot::kLeft;
  }
  if (!run.between || run.between->previous_size != request.size) return false;
  const auto survivor = run.between->survivors.find(request.member);
  return survivor != run.between->survivors.end() && survivor->second.previous_rank == request.rank;
}

}  // namespace

Groups::Refuse number_taken(const JoinRequest& request) {
  return {request.session, request.request,
          make_error(ErrorCode::kAlreadyExists,
                     "member number {} of the group is taken by another session", request.member)};
}

void Groups::Impl::join_elastic(RunId id, Run& run, const JoinRequest& request, Actions& actions) {
  if (request.resume == ResumeMode::kKeepState && join_survivor(id, run, request, actions)) return;
  const bool returns = rejoins_own_rank(run, request);
  if (!replaces(id, run, request, actions)) return;
  if (returns) return add_returning(id, run, request, actions);
  // Replacing the last survivor ends the group.
  if (!run.lives() && run.returning.empty()) return join_ranks(id, run, request, actions);
  add_joiner(id, run, request, actions);
}

// A survivor asks for the next epoch, which ends the current one.
bool Groups::Impl::join_survivor(RunId id, Run& run, const JoinRequest& request, Actions& actions) {
  if (run.current) {
    const auto rank = rank_of(*run.current, request.member);
    if (!rank) return false;
    const bool its_own =
        run.current->slots[*rank] == Slot::kHeld && run.current->sessions[*rank] == request.session;
    if (!its_own && run.current->slots[*rank] != Slot::kAwaited) return false;
    end(id, run, {}, fmt::format("rank {} asks for the next epoch", *rank), actions);
  }
  if (!run.between) return false;
  const auto found = run.between->survivors.find(request.member);
  if (found == run.between->survivors.end()) return false;
  Between::Survivor& survivor = found->second;
  if (survivor.session != 0 && survivor.session != request.session) return false;
  if (survivor.asked) {
    actions.emplace_back(
        Refuse{survivor.asked->session, survivor.asked->request,
               make_error(ErrorCode::kAlreadyExists, "member {} has asked again", request.member)});
  }
  drop_joins(request.session);
  run.between->grace = std::max(run.between->grace.value_or(request.grace), request.grace);
  survivor.session = request.session;
  survivor.asked = request;
  // The survivor seals nothing more in the epoch that it leaves.
  if (const auto member = sessions.find(request.session); member != sessions.end()) {
    actions.emplace_back(
        MemberGone{id, member->second.epoch, member->second.rank, "it asked for the next epoch"});
    member->second.active = false;
  }
  try_open(id, run, actions);
  return true;
}

// True if this process may join without state. A member number in use is refused, except from its
// own session, which lost contact before it had any state. A member not seen since a daemon restart
// counts as gone if its number returns.
bool Groups::Impl::replaces(RunId id, Run& run, const JoinRequest& request, Actions& actions) {
  const auto refuse = [&] {
    actions.emplace_back(number_taken(request));
    return false;
  };
  if (run.current) {
    const auto rank = rank_of(*run.current, request.member);
    if (!rank || run.current->slots[*rank] == Slot::kLeft) return true;
    if (run.current->slots[*rank] == Slot::kHeld) {
      // its session leaves the epoch and becomes a joining rank
      return run.current->sessions[*rank] == request.session || refuse();
    }
    end(id, run, {*rank}, fmt::format("rank {} was replaced while the daemon was away", *rank),
        actions);
  } else if (run.between) {
    const auto survivor = run.between->survivors.find(request.member);
    if (survivor == run.between->survivors.end()) return true;
    const SessionId holder = survivor->second.session;
    if (holder != 0 && holder != request.session) return refuse();
    run.between->survivors.erase(survivor);
  }
  // add_joiner() then opens the next epoch if no survivor is left, with this process in it.
  if (run.between && run.between->survivors.empty()) run.between.reset();
  return true;
}

void Groups::Impl::add_joiner(RunId id, Run& run, const JoinRequest& request, Actions& actions) {
  if (const auto older = run.joiners.find(request.member);
      older != run.joiners.end() && older->second.session != request.session) {
    actions.emplace_back(
        Refuse{older->second.session, older->second.request,
               make_error(ErrorCode::kAlreadyExists,
                          "member {} has joined again from another place", request.member)});
  }
  drop_joins(request.session);
  run.joiners[request.member] = request;
  // A session that was a member under another number, or was dropped, loses that membership.
  if (const auto member = sessions.find(request.session); member != sessions.end()) {
    if (member->second.run == id && member->second.active) {
      leave_current(id, run, member->second, "it joins without its state", true, actions);
    }
    member->second.active = false;
  }
  announce_joiners(run, actions);
  try_open(id, run, actions);
}

void Groups::Impl::begin_between(Run& run, const std::vector<Rank>& lost) {
  const Current& ended = *run.current;
  Between& between = run.between.emplace();
  between.previous_size = static_cast<uint32_t>(ended.slots.size());
  between.grace = ended.grace;
  for (Rank rank = 0; rank < ended.slots.size(); ++rank) {
    if (ended.slots[rank] == Slot::kLeft) continue;
    if (std::find(lost.begin(), lost.end(), rank) != lost.end()) continue;
    const bool held = ended.slots[rank] == Slot::kHeld;
    between.survivors[ended.members[rank]] = {
        .previous_rank = rank, .session = held ? ended.sessions[rank] : 0, .asked = {}};
  }
  if (between.survivors.empty()) run.between.reset();
}

void Groups::Impl::lose_survivor(SessionId session, Actions& actions) {
  for (auto& [id, run] : runs) {
    if (!run.between) continue;
    const size_t lost = std::erase_if(
        run.between->survivors, [&](const auto& entry) { return entry.second.session == session; });
    if (lost == 0) continue;
    if (run.between->survivors.empty()) run.between.reset();
    try_open(id, run, actions);
  }
}

// The record could not be written, and all members were notified: they may ask again.
void Groups::Impl::refused_to_open(RunId id, Run& run, const OpenEpoch& open) {
  const bool former = std::ranges::any_of(open.members, [&](const JoinRequest& request) {
    const auto member = sessions.find(request.session);
    return member != sessions.end() && member->second.run == id &&
           member->second.epoch == run.last_epoch;
  });
  if (open.elastic && !run.between && run.survivors_continued && former) {
    reform(id, run, open.members.front().grace);
  }
  if (!run.between) return;
  run.between->since.reset();
  for (auto& [member, survivor] : run.between->survivors) survivor.asked.reset();
}

void Groups::Impl::try_open_elastic(RunId id, Run& run, Actions& actions) {
  if (run.between) return open_continued(id, run, actions);
  if (!run.returning.empty()) return open_returning(id, run, actions);
  if (former_members_wait(id, run)) return fill_places(id, run, actions);
  // The group is gone, with all its members; waiting processes form a new one. Processes beyond its
  // size keep waiting.
  auto waiting = std::exchange(run.joiners, {});
  while (!waiting.empty() && !run.opening) {
    join_ranks(id, run, waiting.extract(waiting.begin()).mapped(), actions);
  }
  run.joiners.merge(waiting);
}

void Groups::Impl::open_continued(RunId id, Run& run, Actions& actions) {
  const auto& survivors = run.between->survivors;
  const bool all_asked = std::all_of(survivors.begin(), survivors.end(),
                                     [](const auto& entry) { return entry.second.asked; });
  if (!all_asked) return;
  // Returning members have no state, but the group has: they join like any new process.
  run.joiners.merge(run.returning);
  run.returning.clear();
  OpenEpoch open;
  open.run = id;
  open.epoch = run.last_epoch + 1;
  open.elastic = true;
  open.survivors_continue = true;
  open.previous_size = run.between->previous_size;
  open.timed_out = run.between->timed_out;
  std::vector<std::pair<int32_t, JoinRequest>> members;
  members.reserve(survivors.size() + run.joiners.size());
  for (const auto& [member, survivor] : survivors) {
    members.emplace_back(static_cast<int32_t>(survivor.previous_rank), *survivor.asked);
  }
  std::sort(members.begin(), members.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  while (!run.joiners.empty() && members.size() < limits::kGroupSizeMax) {
    members.emplace_back(-1, run.joiners.extract(run.joiners.begin()).mapped());
  }
  for (auto& [previous_rank, member] : members) {
    member.rank = static_cast<Rank>(open.members.size());
    member.size = static_cast<uint32_t>(members.size());
    open.previous_ranks.push_back(previous_rank);
    open.members.push_back(member);
  }
  run.opening = open;
  actions.emplace_back(std::move(open));
}

void Groups::Impl::announce_joiners(const Run& run, Actions& actions) {
  if (!run.current || !run.current->elastic || run.joiners.empty()) return;
  JoinersWaiting waiting{.epoch = run.current->epoch,
                         .count = static_cast<uint32_t>(run.joiners.size()),
                         .members = {}};
  for (size_t rank = 0; rank < run.current->slots.size(); ++rank) {
    if (run.current->slots[rank] == Slot::kHeld) {
      waiting.members.push_back(run.current->sessions[rank]);
    }
  }
  actions.emplace_back(std::move(waiting));
}

Groups::Actions Groups::tick(std::chrono::nanoseconds now) {
  Actions actions;
  for (auto& [id, run] : impl_->runs) {
    if (!run.between || run.opening) continue;
    Between& between = *run.between;
    if (!between.since) between.since = now;
    const std::chrono::milliseconds grace = between.grace.value_or(limits::kSurvivorGrace);
    if (now - *between.since < grace) continue;
    for (const auto& [member, survivor] : between.survivors) {
      if (survivor.asked) continue;
      const auto its = impl_->sessions.find(survivor.session);
      if (its != impl_->sessions.end()) its->second.timed_out = true;
      between.timed_out +=
          fmt::format("{}rank {} of the last epoch did not ask to continue within {} ms",
                      between.timed_out.empty() ? "" : ", ", survivor.previous_rank, grace.count());
    }
    std::erase_if(between.survivors, [](const auto& entry) { return !entry.second.asked; });
    if (between.survivors.empty()) run.between.reset();
    impl_->try_open(id, run, actions);
  }
  return actions;
}

}  // namespace ckptd
