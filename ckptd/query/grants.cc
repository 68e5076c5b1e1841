// Rights of users on the runs of other users.
#include <limits>

#include "ckptd/limits.h"
#include "ckptd/query/documents.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

Result<GrantArgs> parse_grant_args(const QueryContext& context, std::string_view args) {
  CKPT_ASSIGN(const QueryArgs parsed, QueryArgs::parse(args, {"target", "user", "rights"}));
  GrantArgs grant;
  CKPT_ASSIGN(grant.run, whole_run(context, parsed, "grant"));
  CKPT_ASSIGN(const std::vector<std::string> names, parsed.texts("rights"));
  CKPT_ASSIGN(grant.rights, ckpt::parse_rights(names));
  if (!parsed.has("user")) {
    if (!grant.rights.any()) return grant;
    return make_error(ErrorCode::kInvalidArgument, "grant: to which user?");
  }
  CKPT_ASSIGN(const uint64_t user, parsed.number("user", 0));
  // The largest id names no user: for the kernel it means "no change".
  if (user >= std::numeric_limits<uint32_t>::max()) {
    return make_error(ErrorCode::kInvalidArgument, "user {}: no user id", user);
  }
  grant.user = static_cast<uint32_t>(user);
  const ckpt::Grants& grants = grant.run.grants;
  if (*grant.user == grant.run.uid) {
    return make_error(ErrorCode::kInvalidArgument, "run {}: it belongs to user {}", grant.run.name,
                      user);
  }
  if (!grant.rights.any() && !grants.contains(*grant.user)) {
    return make_error(ErrorCode::kNotFound, "run {}: user {} has no grant", grant.run.name, user);
  }
  if (grants.size() >= limits::kGrantsPerRunMax && !grants.contains(*grant.user)) {
    return make_error(ErrorCode::kResourceExhausted, "run {}: {} users have grants, the most",
                      grant.run.name, grants.size());
  }
  return grant;
}

QueryAnswer grant_answer(const QueryContext& context, const RunInfo& run) {
  const auto now = context.catalog.run(run.id);
  if (!now.ok()) return error_answer(now.error());
  Json grants = Json::array();
  for (const auto& [uid, rights] : now->grants) {
    Json grant{{"user", uid}, {"rights", ckpt::right_names(rights)}};
    if (context.may_connect && !context.may_connect(uid)) grant["may_connect"] = false;
    grants.push_back(std::move(grant));
  }
  return {0, dump(Json{{"run", now->name}, {"owner", now->uid}, {"grants", std::move(grants)}})};
}

}  // namespace ckptd
