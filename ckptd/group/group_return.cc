// Elastic groups without survivors: all remaining members have dropped their state, and ask for
// their own places again, to resume from a view together. They form the next epoch first. Joining
// processes are not part of it: they neither fill a place that a former member asks for, nor must
// agree with its request. Once the epoch is open they join it like any group.
//
// A group whose survivors continued in an earlier epoch is formed by its remaining members, with
// ranks renumbered without gaps: a dead member gets no successor. Any other group needs all the
// ranks of its start, and a joining process of the same size may replace a lost or dropped rank.
#include "ckptd/group/group_impl.h"

namespace ckptd {

void Groups::Impl::add_returning(RunId id, Run& run, const JoinRequest& request, Actions& actions) {
  drop_joins(request.session);
  run.returning[request.member] = request;
  if (const auto member = sessions.find(request.session); member != sessions.end()) {
    leave_current(id, run, member->second, "it gives its state up", true, actions);
    member->second.active = false;
  }
  try_open(id, run, actions);
}

// Forms the epoch of the returned members: every other member is lost, left or dropped. try_open()
// opens the epoch if no rank is missing.
void Groups::Impl::open_returning(RunId id, Run& run, Actions& actions) {
  std::vector<JoinRequest> members;
  members.reserve(run.returning.size());
  for (auto& [member, request] : std::exchange(run.returning, {})) members.push_back(request);
  std::ranges::sort(members, {}, &JoinRequest::rank);
  const bool all_agree = std::ranges::all_of(members, [&](const JoinRequest& one) {
    return std::ranges::all_of(members,
                               [&](const JoinRequest& other) { return agree(one, other); });
  });
  if (!all_agree || !run.joining.empty()) {
    // join_ranks() refuses requests that disagree.
    for (const JoinRequest& request : members) join_ranks(id, run, request, actions);
    return;
  }
  for (size_t i = 0; run.survivors_continued && i < members.size(); ++i) {
    members[i].rank = static_cast<Rank>(i);
    members[i].size = static_cast<uint32_t>(members.size());
  }
  for (const JoinRequest& request : members) run.joining.emplace(request.rank, request);
  if (!run.survivors_continued) fill_places(id, run, actions);
}

// True if the request asks for the place that its session had in the run's last epoch.
bool Groups::Impl::is_former(RunId id, const Run& run, const JoinRequest& request) const {
  const auto found = sessions.find(request.session);
  if (!request.elastic || found == sessions.end()) return false;
  const Member& member = found->second;
  return member.run == id && member.epoch == run.last_epoch && !member.left &&
         member.rank == request.rank && member.size == request.size;
}

bool Groups::Impl::former_members_wait(RunId id, const Run& run) const {
  return std::ranges::any_of(run.joining,
                             [&](const auto& entry) { return is_former(id, run, entry.second); });
}

// Joining processes began to form a group, because all former members seemed gone. Now a former
// member asks again: they wait for its group, and may fill its free places.
void Groups::Impl::yield_to_former(RunId id, Run& run, const JoinRequest& request) const {
  if (!is_former(id, run, request)) return;
  for (auto entry = run.joining.begin(); entry != run.joining.end();) {
    const JoinRequest& other = entry->second;
    if (!other.elastic || is_former(id, run, other)) {
      ++entry;
      continue;
    }
    run.joiners[other.member] = other;
    entry = run.joining.erase(entry);
  }
}

// Former members wait for a lost rank: suitable joining processes take its place.
void Groups::Impl::fill_places(RunId id, Run& run, Actions& actions) {
  while (!run.opening) {
    const auto fits = std::ranges::find_if(run.joiners, [&](const auto& entry) {
      return !waits_behind_former(id, run, entry.second);
    });
    if (fits == run.joiners.end()) return;
    join_ranks(id, run, run.joiners.extract(fits).mapped(), actions);
  }
}

// True if the request must wait, because it does not fit the group that former members form again.
bool Groups::Impl::waits_behind_former(RunId id, const Run& run, const JoinRequest& request) const {
  if (!request.elastic || is_former(id, run, request)) return false;
  if (!former_members_wait(id, run)) return false;
  const auto held = run.joining.find(request.rank);
  if (held != run.joining.end() && held->second.session != request.session) return true;
  // Place of a former member that is connected, has not asked yet, and may still ask in time.
  const bool awaited = std::ranges::any_of(sessions, [&](const auto& entry) {
    const Member& member = entry.second;
    return member.run == id && member.epoch == run.last_epoch && !member.left &&
           member.rank == request.rank && !member.timed_out && entry.first != request.session &&
           !joins(entry.first);
  });
  if (awaited) return true;
  // Two joining processes that disagree would cause former members to be refused as well.
  return std::ranges::any_of(run.joining,
                             [&](const auto& entry) { return !agree(entry.second, request); });
}

// True if a member of a continued group asks for its place after the group is gone: it was
// dropped, or the epoch of its return could not be opened. A lost rank gets no successor, so the
// request must not wait for all ranks.
bool Groups::Impl::must_reform(RunId id, const Run& run, const JoinRequest& request) const {
  return run.survivors_continued && !run.lives() && !run.opening &&
         request.resume != ResumeMode::kKeepState && is_former(id, run, request);
}

// Gives its connected members the grace period once more to ask for their places; members that
// already wait for theirs return with them.
void Groups::Impl::reform(RunId id, Run& run, std::chrono::milliseconds grace) {
  for (auto entry = run.joining.begin(); entry != run.joining.end();) {
    const JoinRequest& request = entry->second;
    if (!request.elastic) {
      ++entry;
      continue;
    }
    (is_former(id, run, request) ? run.returning : run.joiners)[request.member] = request;
    entry = run.joining.erase(entry);
  }
  Between between;
  between.grace = grace;
  for (const auto& [session, member] : sessions) {
    if (member.run != id || member.epoch != run.last_epoch || member.left) continue;
    between.previous_size = member.size;
    if (member.timed_out || joins(session)) continue;
    between.survivors[member.member] = {
        .previous_rank = member.rank, .session = session, .asked = {}};
  }
  if (!between.survivors.empty()) run.between = std::move(between);
}

}  // namespace ckptd
