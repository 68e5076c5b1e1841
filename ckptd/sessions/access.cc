#include "ckptd/sessions/access.h"

#include <unistd.h>

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Status;

bool may_use(const Session& session, uid_t owner) {
  return session.uid == owner || session.uid == 0 || session.uid == ::geteuid();
}

bool may(const Session& session, const RunInfo& run, ckpt::Right right) {
  if (may_use(session, run.uid)) return true;
  const auto granted = run.grants.find(session.uid);
  return granted != run.grants.end() && granted->second.has(right);
}

Status check_may(const Session& session, const RunInfo& run, ckpt::Right right) {
  if (may(session, run, right)) return {};
  return make_error(ErrorCode::kPermissionDenied,
                    "run {}: it belongs to user {}, and user {} has no grant to {}", run.name,
                    run.uid, session.uid, ckpt::right_name(right));
}

Status check_owner(const Session& session, const RunInfo& run) {
  if (may_use(session, run.uid)) return {};
  return make_error(ErrorCode::kPermissionDenied, "run {}: only user {}, its owner, may do that",
                    run.name, run.uid);
}

Status may_train(const Session& session, const Catalog& catalog) {
  CKPT_ASSIGN(const RunInfo run, catalog.run(*session.run));
  return check_may(session, run, ckpt::Right::kCommit);
}

bool may_read(const Session& session, const std::string& run, const Catalog& catalog) {
  const auto info = catalog.run(run);
  return info.ok() && may(session, *info, ckpt::Right::kRead);
}

}  // namespace ckptd
