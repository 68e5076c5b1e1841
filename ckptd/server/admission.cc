#include "ckptd/server/admission.h"

#include <algorithm>
#include <utility>

#include "ckptd/limits.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

bool Admission::may_connect(uid_t uid) const {
  return privileged(uid) || std::find(allowed_.begin(), allowed_.end(), uid) != allowed_.end();
}

ckpt::Status Admission::admit(ckpt::SessionId session, uid_t uid) {
  const bool others = !privileged(uid);
  if (!may_connect(uid)) {
    return make_error(ErrorCode::kPermissionDenied,
                      "user {} may not connect: add {} to allow_uids in ckptd's configuration file "
                      "and restart ckptd",
                      uid, uid);
  }
  const size_t reserved = others ? limits::kSessionsReserved : 0;
  if (sessions_.size() + reserved >= limits::kSessionsMax) {
    return make_error(ErrorCode::kResourceExhausted, "there are {} sessions already",
                      sessions_.size());
  }
  const auto found = of_user_.find(uid);
  if (others && found != of_user_.end() && found->second >= limits::kSessionsPerUserMax) {
    return make_error(ErrorCode::kResourceExhausted, "there are {} sessions of user {} already",
                      found->second, uid);
  }
  sessions_.emplace(session, uid);
  ++of_user_[uid];
  return {};
}

void Admission::ended(ckpt::SessionId session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  const auto user = of_user_.find(found->second);
  if (--user->second == 0) of_user_.erase(user);
  sessions_.erase(found);
}

bool RepeatedWarning::say(Time now) {
  // left_out() reports the left-out lines first; no new period begins before that.
  if (left_out_ == 0 && now - began_ >= limits::kWarningsPeriod) {
    began_ = now;
    warnings_ = 0;
  }
  if (warnings_ < limits::kWarningsPerPeriodMax) {
    ++warnings_;
    return true;
  }
  ++left_out_;
  return false;
}

uint64_t RepeatedWarning::left_out(Time now) {
  if (left_out_ == 0 || now - began_ < limits::kWarningsPeriod) return 0;
  return std::exchange(left_out_, 0);
}

}  // namespace ckptd
