#include "client/ctl/keep_verbs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "client/ctl/confirm.h"
#include "client/ctl/flag_values.h"
#include "client/ctl/print_values.h"
#include "client/ctl/say.h"
#include "client/ctl/verb_builder.h"
#include "formats/base/counted.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

struct KeepArguments {
  std::string target;
  RuleFlags rules;
  bool none = false;
  bool dry_run = false;
  bool force = false;
  bool yes = false;
};

Result<Json> best_document(const std::string& text) {
  const auto wrong = [&] {
    return make_error(ErrorCode::kInvalidArgument,
                      "--keep-best {}: should be METRIC:N, or METRIC:N:highest if higher is better",
                      text);
  };
  const size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0) return wrong();
  uint32_t count = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, count);
  const std::string_view rest(parsed.ptr, static_cast<size_t>(end - parsed.ptr));
  const bool highest = rest == ":highest";
  if (parsed.ec != std::errc() || count == 0) return wrong();
  if (!rest.empty() && !highest && rest != ":lowest") return wrong();
  return Json{{"metric", text.substr(0, colon)}, {"count", count}, {"highest", highest}};
}

void add_rules(CLI::App* verb, RuleFlags& rules) {
  verb->add_option("--keep-last", rules.last, "Keep the newest N commits");
  verb->add_option("--keep-hourly", rules.hourly,
                   "Keep the newest of each of the last N hours that have commits");
  verb->add_option("--keep-daily", rules.daily,
                   "Keep the newest of each of the last N days that have commits");
  verb->add_option("--keep-weekly", rules.weekly,
                   "Keep the newest of each of the last N weeks that have commits");
  verb->add_option("--keep-monthly", rules.monthly,
                   "Keep the newest of each of the last N months that have commits");
  verb->add_option("--keep-yearly", rules.yearly,
                   "Keep the newest of each of the last N years that have commits");
  verb->add_option(
      "--keep-within", rules.within,
      "Keep all that are at most this much older than the newest: 12h, 7d, 2m (months), "
      "1y6m");
  verb->add_option("--keep-tag", rules.tags, "Keep commits with this tag; may be repeated")
      ->allow_extra_args(false);
  verb->add_option(
      "--keep-every-steps", rules.every_steps,
      "Keep the first commit of every N steps: of steps 0 to N-1, N to 2N-1, ..., in each lineage");
  verb->add_option("--keep-best", rules.best,
                   "METRIC:N: keep the N with the lowest value; METRIC:N:highest: with the "
                   "highest; may be repeated")
      ->allow_extra_args(false);
}

Result<Outcome> ask(Link& link, const char* question, const Json& arguments, Printer print) {
  CKPT_ASSIGN(Answer answer, link.ask(question, arguments, kLongTimeoutMs));
  return Outcome{std::move(answer.document), print, answer.exit_code};
}

// Asks for a plan. An executed plan has one answer, which counts the entries that do not fit. A dry
// run is listed completely. Messages about the plan as a whole go to stderr.
Result<Outcome> ask_plan(Link& link, const char* question, const Json& arguments, bool dry_run) {
  Json document;
  if (dry_run) {
    CKPT_ASSIGN(document, link.document(question, arguments, kLongTimeoutMs));
  } else {
    CKPT_ASSIGN(Answer answer, link.ask(question, link.with_page_bytes(arguments), kLongTimeoutMs));
    document = std::move(answer.document);
  }
  for (const Json& note : document.value("notes", Json::array())) {
    if (note.is_string()) say("note: {}", note.get<std::string>());
  }
  return Outcome{std::move(document), print_prune, 0};
}

Result<Outcome> run_keep(Link& link, const KeepArguments& args) {
  CKPT_ASSIGN(const Json rules, rules_document(args.rules));
  if (args.none && !rules.is_null()) {
    return make_error(ErrorCode::kInvalidArgument, "--none and rules exclude each other");
  }
  Json question{{"target", args.target}};
  if (args.none) question["rules"] = Json::object();
  if (!rules.is_null()) question["rules"] = rules;
  return ask(link, "keep", question, print_keep);
}

// The commits alone do not show that the run was removed: it may have had none.
std::string print_run_removal(const Json& document) {
  const bool dry = member(document, "dry_run") == true;
  return print_prune(document) +
         fmt::format("run {} {}\n", text(document, "run"), dry ? "would be removed" : "is removed");
}

// Refuses a removal that nobody can confirm, even if nothing would be removed: a script without
// --yes then fails at its first run. A missing run is reported first.
Status check_can_ask(Link& link, const char* verb, const std::string& target) {
  if (can_ask()) return ckpt::ok_status();
  const std::string run = target.substr(0, target.find_first_of("~@"));
  const auto found = link.head("log", {{"target", run}, {"limit", 1}});
  if (!found.ok() && found.error().code == ErrorCode::kNotFound) return found.error();
  return make_error(ErrorCode::kInvalidArgument,
                    "{} {}: a removal cannot be undone, and there is no terminal to ask at: pass "
                    "--yes, or --dry-run to see what would be removed",
                    verb, target);
}

// " and its tags a, b": the tags that are removed with the commits of a plan.
std::string removed_tags_text(const Json& removed) {
  constexpr size_t kNamedMax = 8;
  std::vector<std::string> tags;
  for (const Json& commit : removed) {
    for (const Json& tag : member(commit, "tags")) tags.push_back(text(tag));
  }
  if (tags.empty()) return {};
  const size_t left_out = tags.size() - std::min(tags.size(), kNamedMax);
  const char* noun = tags.size() == 1 ? "tag" : "tags";
  tags.resize(tags.size() - left_out);
  return fmt::format(" and the {} {}{}", noun, fmt::join(tags, ", "),
                     left_out == 0 ? "" : fmt::format(" and {} more", left_out));
}

// Asks the user at the terminal before a removal. `plan`: the answer of a dry run.
Status confirm_removal(const char* verb, const std::string& target, const Json& plan,
                       bool whole_run) {
  const size_t commits = member(plan, "removed").size();
  const std::string question = fmt::format(
      "ckptctl: {} {}: this removes {} with {}{}{} for good; continue?", verb, target,
      ckpt::base::counted(commits, "commit"), size(plan, "bytes"),
      removed_tags_text(member(plan, "removed")), whole_run ? " and the run itself" : "");
  if (confirm(question)) return ckpt::ok_status();
  return make_error(ErrorCode::kAborted, "{} {}: nothing was removed", verb, target);
}

// A plan that removes nothing needs no confirmation.
Result<Outcome> confirm_and_prune(Link& link, const KeepArguments& args, Json question) {
  if (!args.dry_run && !args.yes) {
    CKPT_TRY(check_can_ask(link, "prune", args.target));
    question["dry_run"] = true;
    CKPT_ASSIGN(const Json plan, link.document("prune", question, kLongTimeoutMs));
    if (!member(plan, "removed").is_array()) {
      return ckpt::make_error(ckpt::ErrorCode::kVersionMismatch,
                              "prune {}: this ckptd does not say what it would remove; --yes "
                              "prunes without a question",
                              args.target);
    }
    // The question does not cover commits made from now on.
    if (plan["removed"].empty()) return ask_plan(link, "prune", question, true);
    CKPT_TRY(confirm_removal("prune", args.target, plan, /*whole_run=*/false));
  }
  question["dry_run"] = args.dry_run;
  return ask_plan(link, "prune", question, args.dry_run);
}

Result<Outcome> run_prune(Link& link, const KeepArguments& args) {
  CKPT_ASSIGN(const Json rules, rules_document(args.rules));
  Json question{{"target", args.target}};
  if (args.force) question["force"] = true;
  if (!rules.is_null()) question["rules"] = rules;
  Result<Outcome> pruned = confirm_and_prune(link, args, question);
  if (pruned.ok() || !refuses_argument(pruned.error(), "force")) return pruned;
  warn("this ckptd is older and holds nothing for readers: --force is not needed");
  question.erase("force");
  return confirm_and_prune(link, args, question);
}

Result<Outcome> run_rm(Link& link, const KeepArguments& args) {
  Json question{{"target", args.target}, {"force", args.force}, {"dry_run", true}};
  const bool whole_run = args.target.find_first_of("~@") == std::string::npos;
  if (!args.dry_run && !args.yes) {
    CKPT_TRY(check_can_ask(link, "rm", args.target));
    CKPT_ASSIGN(const Json plan, link.document("rm", question, kLongTimeoutMs));
    CKPT_TRY(confirm_removal("rm", args.target, plan, whole_run));
  }
  question["dry_run"] = args.dry_run;
  CKPT_ASSIGN(Outcome outcome, ask_plan(link, "rm", question, args.dry_run));
  if (whole_run) outcome.print = print_run_removal;
  return outcome;
}

void add_yes(CLI::App* verb, bool& yes) {
  verb->add_flag("--yes,-y", yes, "Do not ask first; required where there is no terminal");
}

// Footer shared by both verbs.
void add_protected(CLI::App* verb) {
  verb->footer(
      "Protected:\n"
      "  a pinned commit: prune keeps it, rm removes it only by --force\n"
      "  a tagged commit: prune keeps it only by --keep-tag, rm removes it only by --force\n"
      "  the newest complete view, and the commit that the current lineage builds on: prune "
      "keeps both,\n"
      "    rm removes them only by --force, and not while the run is trained\n"
      "  a commit that another run was started from: prune keeps it, rm refuses\n"
      "  a commit that a reader holds: prune keeps it, rm refuses; root and ckptd's user end that "
      "by --force\n\n" +
      verb->get_footer());
}

void add_removal(Builder& build, const std::shared_ptr<KeepArguments>& args) {
  CLI::App* rm = build.add(
      "rm", "Remove a run with all its commits, or one commit",
      "  ckptctl rm tiny --dry-run\n  ckptctl rm tiny\n  ckptctl rm tiny@1200 --force --yes",
      [args](Link& link) { return run_rm(link, *args); });
  // No default from CKPTD_RUN: the target of a removal must be given.
  rm->add_option("target", args->target, "RUN, or a commit")->required();
  rm->add_flag("--force,-f", args->force,
               "Also remove what is protected (see below), as far as --force can");
  add_protected(rm);
  add_yes(rm, args->yes);
  rm->add_flag("--dry-run,-n", args->dry_run,
               "Only show what would be removed, or why rm would refuse (same exit code)");
}

void add_pins(Builder& build, const std::shared_ptr<KeepArguments>& args) {
  CLI::App* pin = build.add_question(
      "pin", "Keep a commit whatever the rules say", "  ckptctl pin tiny@1200", "pin",
      [args] {
        return Json{{"target", args->target}};
      },
      print_pin);
  pin->add_option("commit", args->target, kCommitNames)->required();
  CLI::App* unpin = build.add_question(
      "unpin", "Unpin a commit: the rules decide about it again", "  ckptctl unpin tiny@1200",
      "pin",
      [args] {
        return Json{{"target", args->target}, {"remove", true}};
      },
      print_pin);
  unpin->add_option("commit", args->target, kCommitNames)->required();
}

}  // namespace

Result<Json> rules_document(const RuleFlags& flags) {
  Json rules = Json::object();
  const std::array<std::pair<const char*, std::optional<uint64_t>>, 7> counts = {
      {{"last", flags.last},
       {"hourly", flags.hourly},
       {"daily", flags.daily},
       {"weekly", flags.weekly},
       {"monthly", flags.monthly},
       {"yearly", flags.yearly},
       {"every_steps", flags.every_steps}}};
  // A rule that keeps nothing is a mistake, for example an unset variable of a script. Without that
  // rule, the run's own rules would apply.
  for (const auto& [name, count] : counts) {
    if (count == 0) {
      std::string flag = name;
      std::ranges::replace(flag, '_', '-');
      return make_error(ErrorCode::kInvalidArgument, "--keep-{} 0: it would keep nothing", flag);
    }
    if (count) rules[name] = *count;
  }
  if (flags.within) {
    CKPT_ASSIGN(const auto within, age_value("--keep-within", *flags.within));
    rules["within_seconds"] = static_cast<uint64_t>(within / std::chrono::seconds(1));
  }
  if (!flags.tags.empty()) rules["tags"] = flags.tags;
  for (const std::string& text : flags.best) {
    CKPT_ASSIGN(Json best, best_document(text));
    rules["best"].push_back(std::move(best));
  }
  return rules.empty() ? Json() : rules;
}

void add_keeping(Builder& build) {
  const auto args = std::make_shared<KeepArguments>();
  CLI::App* keep =
      build.add("keep", "Show the rules that decide which commits `prune` keeps, or replace them",
                "  ckptctl keep tiny --keep-last 5 --keep-daily 7 --keep-best loss:3\n"
                "  ckptctl keep tiny\n  ckptctl keep tiny --none",
                [args](Link& link) { return run_keep(link, *args); });
  build.target(keep, args->target, "run", "RUN");
  add_rules(keep, args->rules);
  keep->add_flag("--none", args->none, "Remove all rules of the run");
  CLI::App* prune =
      build.add("prune", "Remove the commits that no rule keeps, and free their space",
                "  ckptctl prune tiny --dry-run\n  ckptctl prune tiny --keep-last 3\n"
                "  ckptctl prune tiny --yes",
                [args](Link& link) { return run_prune(link, *args); });
  // No default from CKPTD_RUN: the target of a removal must be given.
  prune->add_option("run", args->target, "RUN")->required();
  add_rules(prune, args->rules);
  prune->add_flag(
      "--force,-f", args->force,
      "Also remove commits that readers hold, as an export does (root and ckptd's user only)");
  add_protected(prune);
  add_yes(prune, args->yes);
  prune->add_flag("--dry-run,-n", args->dry_run, "Only show what would be removed, and why");
  add_removal(build, args);
  add_pins(build, args);
  build.add_question(
      "gc", "Free the space of deleted commits now, and show how much that was", "  ckptctl gc",
      "gc", [] { return Json::object(); }, print_gc, kLongTimeoutMs);
}

}  // namespace ckptctl
