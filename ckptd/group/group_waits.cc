// Why joins wait: the holder of a requested place, and the ranks that have not joined.
#include "ckptd/group/group_impl.h"

namespace ckptd {

std::optional<SessionId> Groups::holder(RunId id, const JoinRequest& request) const {
  const auto found = impl_->runs.find(id);
  if (found == impl_->runs.end()) return std::nullopt;
  const Run& run = found->second;
  SessionId session = 0;
  if (run.current) {
    const Current& current = *run.current;
    size_t rank = request.rank;
    if (request.elastic && current.elastic) {
      const auto member = std::ranges::find(current.members, request.member);
      rank = static_cast<size_t>(member - current.members.begin());
    }
    if (rank < current.slots.size() && current.slots[rank] == Slot::kHeld) {
      session = current.sessions[rank];
    }
  } else if (run.between) {
    const auto survivor = run.between->survivors.find(request.member);
    if (survivor != run.between->survivors.end()) session = survivor->second.session;
  }
  if (session == 0 || session == request.session) return std::nullopt;
  return session;
}

std::optional<Groups::Wait> Groups::wait(SessionId session) const {
  for (const auto& [id, run] : impl_->runs) {
    const auto asks = [session](const auto& entry) { return entry.second.session == session; };
    if (const auto joiner = std::ranges::find_if(run.joiners, asks); joiner != run.joiners.end()) {
      return Wait{joiner->second, holder(id, joiner->second), {}};
    }
    const auto returning = std::ranges::find_if(run.returning, asks);
    if (returning != run.returning.end()) {
      Wait wait{returning->second, holder(id, returning->second), {}};
      if (!run.between) return wait;
      for (const auto& [member, survivor] : run.between->survivors) {
        if (!survivor.asked) wait.missing.push_back(survivor.previous_rank);
      }
      std::ranges::sort(wait.missing);
      return wait;
    }
    const auto joining = std::ranges::find_if(run.joining, asks);
    if (joining == run.joining.end()) continue;
    Wait wait{joining->second, holder(id, joining->second), {}};
    for (Rank rank = 0; rank < wait.request.size; ++rank) {
      if (!run.joining.contains(rank)) wait.missing.push_back(rank);
    }
    return wait;
  }
  return std::nullopt;
}

}  // namespace ckptd
