#include "ckptd/holds/holds.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;

Result<HoldId> Holds::take(Hold hold) {
  size_t of_session = 0;
  size_t of_user = 0;
  for (const auto& [id, other] : holds_) {
    if (other.holder.session == hold.holder.session) ++of_session;
    if (other.holder.uid == hold.holder.uid) ++of_user;
  }
  if (of_session >= bounds_.per_session) {
    return make_error(ErrorCode::kResourceExhausted,
                      "this session holds {} views already, the most; release one", of_session);
  }
  if (!hold.holder.privileged && of_user >= bounds_.per_user) {
    return make_error(ErrorCode::kResourceExhausted,
                      "user {} holds {} views already, the most of one user", hold.holder.uid,
                      of_user);
  }
  const size_t most = bounds_.all - (hold.holder.privileged ? 0 : bounds_.reserved);
  if (holds_.size() >= most) {
    return make_error(ErrorCode::kResourceExhausted, "{} views are held already, the most{}",
                      holds_.size(), hold.holder.privileged ? "" : " for users other than root");
  }
  hold.id = next_++;
  return holds_.emplace(hold.id, std::move(hold)).first->first;
}

bool Holds::release(ckpt::SessionId session, HoldId id) {
  const auto found = holds_.find(id);
  if (found == holds_.end() || found->second.holder.session != session) return false;
  holds_.erase(found);
  return true;
}

bool Holds::renew(ckpt::SessionId session, HoldId id, std::chrono::nanoseconds now) {
  const auto found = holds_.find(id);
  if (found == holds_.end() || found->second.holder.session != session) return false;
  found->second.progress_at = std::max(found->second.progress_at, now);
  return true;
}

void Holds::progress(ckpt::SessionId session, std::chrono::nanoseconds now) {
  for (auto& [id, hold] : holds_) {
    if (hold.holder.session == session) hold.progress_at = std::max(hold.progress_at, now);
  }
}

std::vector<Hold> Holds::end_overdue(std::chrono::nanoseconds now) {
  const std::chrono::nanoseconds since = now - std::exchange(checked_at_, now).value_or(now);
  if (since > bounds_.stall) {
    for (auto& [id, hold] : holds_) {
      hold.progress_at = std::min(now, hold.progress_at + (since - bounds_.stall));
    }
  }
  return end_if(
      [&](const Hold& hold) { return !hold.of_job && now - hold.progress_at >= bounds_.lease; });
}

std::vector<Hold> Holds::end_session(ckpt::SessionId session) {
  return end_if([&](const Hold& hold) { return hold.holder.session == session; });
}

std::vector<Hold> Holds::end_if(const std::function<bool(const Hold&)>& which) {
  std::vector<Hold> ended;
  for (auto hold = holds_.begin(); hold != holds_.end();) {
    if (which(hold->second)) {
      ended.push_back(std::move(hold->second));
      hold = holds_.erase(hold);
    } else {
      ++hold;
    }
  }
  return ended;
}

std::vector<Hold> Holds::of_run(ckpt::RunId run) const {
  std::vector<Hold> found;
  for (const auto& [id, hold] : holds_) {
    if (hold.run == run) found.push_back(hold);
  }
  return found;
}

std::string describe(const Holder& holder) {
  return fmt::format("{} (process {}, user {})",
                     holder.client.empty() ? std::string("a client") : holder.client, holder.pid,
                     holder.uid);
}

}  // namespace ckptd
