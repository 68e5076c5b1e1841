#include "ckptd/sessions/access.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <string>
#include <vector>

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

Status check_may(const Session& session, const RunInfo& run,
                 std::initializer_list<ckpt::Right> any_of) {
  std::vector<std::string> missing;
  for (const ckpt::Right right : any_of) {
    if (may(session, run, right)) return {};
    missing.emplace_back(ckpt::right_name(right));
  }
  // A grant replaces the user's earlier one, so the command names those rights, too.
  const auto granted = run.grants.find(session.uid);
  std::vector<std::string> rights;
  if (granted != run.grants.end()) rights = ckpt::right_names(granted->second);
  rights.push_back(missing.front());
  return make_error(ErrorCode::kPermissionDenied,
                    "run {}: it belongs to user {}, and user {} has no grant to {}; its owner "
                    "gives one with `ckptctl grant {} {} {}`",
                    run.name, run.uid, session.uid, fmt::join(missing, " or to "), run.name,
                    session.uid, fmt::join(rights, " "));
}

Status check_owner(const Session& session, const RunInfo& run) {
  if (may_use(session, run.uid)) return {};
  return make_error(ErrorCode::kPermissionDenied, "run {}: only user {}, its owner, may do that",
                    run.name, run.uid);
}

Status may_train(const Session& session, const Catalog& catalog) {
  CKPT_ASSIGN(const RunInfo run, catalog.run(*session.run));
  return check_may(session, run, {ckpt::Right::kCommit});
}

bool may_read(const Session& session, const std::string& run, const Catalog& catalog) {
  const auto info = catalog.run(run);
  return info.ok() && may(session, *info, ckpt::Right::kRead);
}

}  // namespace ckptd
