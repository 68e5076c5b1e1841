// One job at a time: finds the session that keeps another job from a run.
#include "ckptd/group/group_impl.h"

namespace ckptd {

std::optional<SessionId> Groups::other_job(RunId id, SessionId session, JobId job) const {
  const auto found = impl_->runs.find(id);
  if (job == 0 || found == impl_->runs.end()) return std::nullopt;
  const Run& run = found->second;
  const auto differs = [&](SessionId other_session, JobId other) {
    return other_session != session && other != 0 && other != job;
  };
  // Members of the current epoch, and of an ended one: they will ask for the next epoch.
  for (const auto& [other, member] : impl_->sessions) {
    if (member.run == id && !member.left && differs(other, member.job)) return other;
  }
  for (const auto& [rank, request] : run.joining) {
    if (differs(request.session, request.job)) return request.session;
  }
  for (const auto* members : {&run.joiners, &run.returning}) {
    for (const auto& [member, request] : *members) {
      if (differs(request.session, request.job)) return request.session;
    }
  }
  // A survivor that asked after a daemon restart, without a rejoin.
  if (run.between) {
    for (const auto& [member, survivor] : run.between->survivors) {
      if (survivor.asked && differs(survivor.session, survivor.asked->job)) return survivor.session;
    }
  }
  if (!run.opening) return std::nullopt;
  for (const JoinRequest& member : run.opening->members) {
    if (!run.lost_while_opening.contains(member.rank) && differs(member.session, member.job)) {
      return member.session;
    }
  }
  return std::nullopt;
}

}  // namespace ckptd
