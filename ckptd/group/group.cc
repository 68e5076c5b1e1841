#include "ckptd/group/group.h"

#include <algorithm>

#include "ckptd/group/group_impl.h"
#include "ckptd/limits.h"

namespace ckptd {

namespace {

std::string describe(const JoinRequest& request) {
  static constexpr const char* kNames[] = {"start", "latest", "at step", "continue", "keep state"};
  std::string text =
      fmt::format("size {}, resume {}", request.size, kNames[static_cast<size_t>(request.resume)]);
  if (request.resume == ResumeMode::kAtStep) {
    text += fmt::format(" {}", request.resume_step);
    if (request.resume_lineage != 0) text += fmt::format(" of lineage {}", request.resume_lineage);
  }
  return text;
}

}  // namespace

bool agree(const JoinRequest& a, const JoinRequest& b) {
  if (a.size != b.size || a.elastic != b.elastic) return false;
  if (a.resume == ResumeMode::kContinue || b.resume == ResumeMode::kContinue) return true;
  if (a.resume != b.resume) return false;
  return a.resume != ResumeMode::kAtStep ||
         (a.resume_lineage == b.resume_lineage && a.resume_step == b.resume_step);
}

Groups::Groups() : impl_(std::make_unique<Impl>()) {}
Groups::~Groups() = default;

void Groups::recovered(RunId id, Epoch epoch, uint32_t size, LineageId lineage,
                       const std::vector<MemberId>& members, bool survivors_continued) {
  Run& run = impl_->runs[id];
  run.last_epoch = epoch;
  if (size == 0) return;
  run.current.emplace();
  run.current->epoch = epoch;
  run.current->lineage = lineage;
  run.current->slots.assign(size, Slot::kAwaited);
  run.current->sessions.assign(size, 0);
  run.current->elastic = members.size() == size;
  run.current->members = members;
  run.survivors_continued = survivors_continued;
}

Groups::Actions Groups::rejoin_deadline_passed() {
  Actions actions;
  for (auto& [id, run] : impl_->runs) {
    if (!run.current) continue;
    std::vector<Rank> lost;
    for (size_t rank = 0; rank < run.current->slots.size(); ++rank) {
      if (run.current->slots[rank] == Slot::kAwaited) lost.push_back(static_cast<Rank>(rank));
    }
    if (lost.empty()) continue;
    if (lost.size() == run.current->slots.size()) {
      // No member returned: the job ended long ago, and no client needs a notice.
      run.current.reset();
      impl_->try_open(id, run, actions);
      continue;
    }
    impl_->end(id, run, lost, "not all members came back after the daemon was restarted", actions);
    impl_->try_open(id, run, actions);
  }
  return actions;
}

Groups::Actions Groups::join(RunId id, const JoinRequest& request) {
  Run& run = impl_->runs[id];
  Actions actions;
  if (run.opens_for(request.session)) {
    // The client had not waited for the answer: it asks again, and is heard once the epoch is open.
    actions.emplace_back(Refuse{
        request.session, request.request,
        make_error(ErrorCode::kUnavailable, "rank {} has joined epoch {}, which is being opened",
                   request.rank, run.opening->epoch)});
    return actions;
  }
  if (request.size == 0 || request.size > limits::kGroupSizeMax || request.rank >= request.size ||
      request.resume > ResumeMode::kKeepState ||
      (request.resume == ResumeMode::kKeepState && !request.elastic)) {
    actions.emplace_back(
        Refuse{request.session, request.request,
               make_error(ErrorCode::kInvalidArgument,
                          "rank {} of {}: a group has 1 to {} ranks, counted from 0", request.rank,
                          request.size, limits::kGroupSizeMax)});
  } else if (other_job(id, request.session, request.job)) {
    actions.emplace_back(
        Refuse{request.session, request.request,
               make_error(ErrorCode::kAlreadyExists, "another job trains this run")});
  } else {
    impl_->sort_in(id, run, request, actions);
  }
  const bool refused = std::ranges::any_of(actions, [&](const Action& action) {
    const auto* answer = std::get_if<Refuse>(&action);
    return answer != nullptr && answer->session == request.session &&
           answer->request == request.request;
  });
  if (refused) impl_->drop(request.session, "its join was refused", actions);
  return actions;
}

Groups::Actions Groups::refused(SessionId session) {
  Actions actions;
  impl_->drop(session, "its join was refused", actions);
  return actions;
}

void Groups::Impl::sort_in(RunId id, Run& run, const JoinRequest& request, Actions& actions) {
  end_unseen(id, run, request.resume, actions);
  if (const auto its = sessions.find(request.session); its != sessions.end()) {
    its->second.timed_out = false;
  }
  if (must_reform(id, run, request)) reform(id, run, request.grace);
  const bool behind_former = waits_behind_former(id, run, request);
  const bool joins_group = (request.elastic && run.lives()) || behind_former;
  if (joins_group && run.member_number_in_use(request)) {
    actions.emplace_back(number_taken(request));
  } else if (request.elastic && run.lives()) {
    join_elastic(id, run, request, actions);
  } else if (behind_former) {
    add_joiner(id, run, request, actions);
  } else {
    yield_to_former(id, run, request);
    join_ranks(id, run, request, actions);
  }
}

void Groups::Impl::join_ranks(RunId id, Run& run, JoinRequest request, Actions& actions) {
  // No survivors are left: the run can only be resumed from a view.
  if (request.resume == ResumeMode::kKeepState) request.resume = ResumeMode::kContinue;
  const auto refuse = [&actions](const JoinRequest& rejected, Error error) {
    actions.emplace_back(Refuse{rejected.session, rejected.request, std::move(error)});
  };
  const auto disagrees =
      std::find_if(run.joining.begin(), run.joining.end(),
                   [&](const auto& other) { return !agree(other.second, request); });
  if (disagrees != run.joining.end()) {
    const Error error =
        make_error(ErrorCode::kInvalidArgument, "rank {} asks for {}, but rank {} for {}",
                   request.rank, describe(request), disagrees->first, describe(disagrees->second));
    for (const auto& [rank, other] : run.joining) refuse(other, error);
    refuse(request, error);
    run.joining.clear();
    return;
  }
  if (const auto held = run.joining.find(request.rank); held != run.joining.end()) {
    refuse(held->second, make_error(ErrorCode::kAlreadyExists,
                                    "rank {} has joined again from another place", request.rank));
  }
  drop_joins(request.session);
  for (const auto& [rank, other] : run.joining) {
    if (!request.elastic || rank == request.rank || other.member != request.member) continue;
    return refuse(request, make_error(ErrorCode::kInvalidArgument,
                                      "rank {} says it is member {}, and so does rank {}",
                                      request.rank, request.member, rank));
  }
  run.joining[request.rank] = request;
  const auto member = sessions.find(request.session);
  if (member != sessions.end() && member->second.run == id) {
    leave_current(id, run, member->second, "it asked for the next epoch", true, actions);
    member->second.active = false;
  }
  if (run.current && request.rank < run.current->slots.size() &&
      run.current->slots[request.rank] == Slot::kAwaited) {
    end(id, run, {request.rank},
        fmt::format("rank {} was replaced while the daemon was away", request.rank), actions);
  }
  try_open(id, run, actions);
}

Groups::Actions Groups::opened(RunId id, Epoch epoch, LineageId lineage, const Status& status) {
  Run& run = impl_->runs[id];
  CKPT_ASSERT_MSG(run.opening && run.opening->epoch == epoch, "answer to an epoch nobody opens");
  const OpenEpoch open = std::move(*run.opening);
  const std::map<Rank, std::string> lost = std::move(run.lost_while_opening);
  run.opening.reset();
  run.lost_while_opening.clear();
  Actions actions;
  if (!status) {
    for (const JoinRequest& member : open.members) {
      if (lost.contains(member.rank)) continue;
      actions.emplace_back(Refuse{member.session, member.request, status.error()});
    }
    impl_->refused_to_open(id, run, open);
    impl_->try_open(id, run, actions);
    return actions;
  }
  const bool same_group = std::ranges::all_of(open.members, [&](const JoinRequest& member) {
    const auto before = impl_->sessions.find(member.session);
    if (before == impl_->sessions.end()) return lost.contains(member.rank);
    return before->second.run == id && before->second.epoch == run.last_epoch;
  });
  run.survivors_continued =
      open.survivors_continue || (open.elastic && run.survivors_continued && same_group);
  run.last_epoch = epoch;
  run.current.emplace();
  run.current->epoch = epoch;
  run.current->lineage = lineage;
  run.current->elastic = open.elastic;
  run.between.reset();
  for (const JoinRequest& member : open.members) {
    const bool here = !lost.contains(member.rank);
    run.current->members.push_back(member.member);
    run.current->grace = std::max(run.current->grace.value_or(member.grace), member.grace);
    run.current->slots.push_back(here ? Slot::kHeld : Slot::kLeft);
    run.current->sessions.push_back(member.session);
    if (!here) continue;
    impl_->sessions[member.session] = Member{.run = id,
                                             .epoch = epoch,
                                             .rank = member.rank,
                                             .size = member.size,
                                             .lineage = lineage,
                                             .active = true,
                                             .job = member.job,
                                             .member = member.member};
  }
  if (!lost.empty()) {
    std::vector<Rank> ranks;
    ranks.reserve(lost.size());
    for (const auto& [rank, reason] : lost) ranks.push_back(rank);
    impl_->end(id, run, ranks,
               fmt::format("rank {}: {}", lost.begin()->first, lost.begin()->second), actions);
    impl_->try_open(id, run, actions);
  } else {
    impl_->announce_joiners(run, actions);
  }
  return actions;
}

Result<LineageId> Groups::rejoin(RunId id, SessionId session, Rank rank, Epoch epoch, JobId job) {
  Run& run = impl_->runs[id];
  if (!run.current || run.current->epoch != epoch || rank >= run.current->slots.size()) {
    return make_error(ErrorCode::kAborted, "epoch {} is over; the last one is {}", epoch,
                      run.last_epoch);
  }
  // One session is one rank: end() and lost() rely on that.
  if (const auto member = impl_->sessions.find(session); member != impl_->sessions.end()) {
    return make_error(ErrorCode::kFailedPrecondition, "this session is rank {} of epoch {} already",
                      member->second.rank, member->second.epoch);
  }
  if (impl_->joins(session)) {
    return make_error(ErrorCode::kFailedPrecondition, "this session has asked for the next epoch");
  }
  if (run.current->slots[rank] != Slot::kAwaited) {
    return make_error(ErrorCode::kAborted, "epoch {}: rank {} is not awaited", epoch, rank);
  }
  if (other_job(id, session, job)) {
    return make_error(ErrorCode::kAborted, "epoch {}: another job trains this run", epoch);
  }
  run.current->slots[rank] = Slot::kHeld;
  run.current->sessions[rank] = session;
  impl_->sessions[session] =
      Member{.run = id,
             .epoch = epoch,
             .rank = rank,
             .size = static_cast<uint32_t>(run.current->slots.size()),
             .lineage = run.current->lineage,
             .active = true,
             .job = job,
             .member = run.current->elastic ? run.current->members[rank] : MemberId{0}};
  return run.current->lineage;
}

Groups::Actions Groups::leave(SessionId session) {
  Actions actions;
  impl_->drop_joins(session);
  impl_->lost_while_opening(session, "it left before the epoch was open");
  impl_->lose_survivor(session, actions);
  const auto found = impl_->sessions.find(session);
  if (found == impl_->sessions.end()) return actions;
  Run& run = impl_->runs[found->second.run];
  impl_->leave_current(found->second.run, run, found->second, "it left", false, actions);
  found->second.active = false;
  found->second.left = true;
  impl_->try_open(found->second.run, run, actions);
  return actions;
}

Groups::Actions Groups::lost(SessionId session, const std::string& reason) {
  Actions actions;
  impl_->drop(session, reason, actions);
  const auto found = impl_->sessions.find(session);
  if (found == impl_->sessions.end()) return actions;
  const RunId id = found->second.run;
  impl_->sessions.erase(found);
  impl_->try_open(id, impl_->runs[id], actions);  // its place may be free now
  return actions;
}

bool Groups::opens_for(RunId id, SessionId session) const {
  const auto run = impl_->runs.find(id);
  return run != impl_->runs.end() && run->second.opens_for(session);
}

std::optional<Groups::Member> Groups::member(SessionId session) const {
  const auto found = impl_->sessions.find(session);
  if (found == impl_->sessions.end()) return std::nullopt;
  return found->second;
}

std::vector<SessionId> Groups::members(RunId run, Epoch epoch) const {
  std::vector<SessionId> found;
  for (const auto& [session, member] : impl_->sessions) {
    if (member.run == run && member.epoch == epoch) found.push_back(session);
  }
  return found;
}

Epoch Groups::last_epoch(RunId run) const {
  const auto found = impl_->runs.find(run);
  return found == impl_->runs.end() ? 0 : found->second.last_epoch;
}

bool Groups::in_use(RunId id) const {
  const auto found = impl_->runs.find(id);
  return found != impl_->runs.end() && found->second.in_use();
}

bool Groups::awaited(RunId id) const {
  const auto found = impl_->runs.find(id);
  return found != impl_->runs.end() && found->second.in_use() && !found->second.trained();
}

std::vector<std::pair<RunId, Epoch>> Groups::epochs_in_use() const {
  std::vector<std::pair<RunId, Epoch>> epochs;
  for (const auto& [id, run] : impl_->runs) {
    if (run.in_use()) epochs.emplace_back(id, run.last_epoch);
  }
  return epochs;
}

std::vector<RunId> Groups::trained_runs() const {
  std::vector<RunId> trained;
  for (const auto& [id, run] : impl_->runs) {
    if (run.trained()) trained.push_back(id);
  }
  return trained;
}

bool Groups::would_lose(SessionId session) const {
  const auto found = impl_->sessions.find(session);
  if (found != impl_->sessions.end() && !found->second.left) return true;
  return std::ranges::any_of(impl_->runs,
                             [&](const auto& run) { return run.second.opens_for(session); });
}

Result<Groups::Actions> Groups::kv_set(SessionId session, Epoch epoch, const std::string& key,
                                       std::vector<uint8_t> value) {
  const auto member = impl_->sessions.find(session);
  if (member == impl_->sessions.end() || !member->second.active || member->second.epoch != epoch) {
    return make_error(ErrorCode::kAborted, "rendezvous: not a member of epoch {}", epoch);
  }
  Rendezvous& rendezvous = impl_->runs[member->second.run].current->rendezvous;
  CKPT_ASSIGN(const auto waiters, rendezvous.set(key, std::move(value)));
  Actions actions;
  for (const Rendezvous::Waiter& waiter : waiters) {
    actions.emplace_back(KvAnswer{waiter.session, waiter.request, key, rendezvous.value(key)});
  }
  return actions;
}

Result<Groups::Actions> Groups::kv_get(SessionId session, uint64_t request, Epoch epoch,
                                       const std::string& key) {
  const auto member = impl_->sessions.find(session);
  if (member == impl_->sessions.end() || !member->second.active || member->second.epoch != epoch) {
    return make_error(ErrorCode::kAborted, "rendezvous: not a member of epoch {}", epoch);
  }
  Rendezvous& rendezvous = impl_->runs[member->second.run].current->rendezvous;
  CKPT_ASSIGN(const auto* value, rendezvous.get(key, {session, request}));
  Actions actions;
  if (value != nullptr) actions.emplace_back(KvAnswer{session, request, key, *value});
  return actions;
}

}  // namespace ckptd
