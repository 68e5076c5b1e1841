#include "client/ctl/grant_verb.h"

#include <pwd.h>

#include <array>
#include <charconv>
#include <vector>

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

struct GrantArguments {
  std::string target;
  std::string user;
  std::vector<std::string> rights;
  bool revoke = false;
};

// A number, or the name of a user of this machine.
Result<uint32_t> user_id(const std::string& user) {
  uint32_t uid = 0;
  const char* end = user.data() + user.size();
  const auto [rest, error] = std::from_chars(user.data(), end, uid);
  if (error == std::errc() && rest == end) return uid;
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 16384> texts{};
  const int failed = ::getpwnam_r(user.c_str(), &entry, texts.data(), texts.size(), &found);
  if (failed == 0 && found != nullptr) return static_cast<uint32_t>(entry.pw_uid);
  return make_error(ErrorCode::kNotFound, "user {}: no such user on this machine", user);
}

constexpr const char* kGrantSyntax =
    "`ckptctl grant RUN USER read|commit|prune ...` or `ckptctl grant RUN USER --revoke`";

Result<Outcome> run_grant(Link& link, const GrantArguments& args) {
  Json question{{"target", args.target}};
  if (args.user.empty() && args.revoke) {
    return make_error(ErrorCode::kInvalidArgument,
                      "grant: --revoke: the user is missing whose rights end: {}", kGrantSyntax);
  }
  if (!args.user.empty()) {
    CKPT_ASSIGN(question["user"], user_id(args.user));
  }
  if (!args.user.empty() && !args.revoke && args.rights.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "grant: say what user {} may do (read, commit, prune), or --revoke: {}",
                      args.user, kGrantSyntax);
  }
  if (args.revoke && !args.rights.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "grant: --revoke takes all rights back, so no right goes with it: {}",
                      kGrantSyntax);
  }
  if (!args.user.empty()) question["rights"] = args.rights;
  CKPT_ASSIGN(Answer answer, link.ask("grant", question, kLongTimeoutMs));
  return Outcome{std::move(answer.document), print_grants, answer.exit_code};
}

}  // namespace

void add_grant(Builder& build) {
  const auto args = std::make_shared<GrantArguments>();
  CLI::App* grant = build.add("grant", "Let another user read, train or prune a run",
                              "  ckptctl grant tiny evaluator read\n"
                              "  ckptctl grant tiny 1001 commit prune\n"
                              "  ckptctl grant tiny 1001 --revoke\n  ckptctl grant tiny",
                              [args](Link& link) { return run_grant(link, *args); });
  grant->add_option("run", args->target, "RUN")->required();
  grant->add_option("user", args->user, "Name or id of a user (default: only show the grants)");
  grant->add_option("rights", args->rights, "What the user may do from now on: read, commit, prune")
      ->check(CLI::IsMember({"read", "commit", "prune"}));
  grant->add_flag("--revoke", args->revoke, "Take all rights of the user back");
}

}  // namespace ckptctl
