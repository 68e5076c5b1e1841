#include "client/ctl/keep_verbs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "client/ctl/confirm.h"
#include "client/ctl/say.h"
#include "client/ctl/verb_builder.h"
#include "formats/base/counted.h"
#include "formats/base/parse.h"

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
                      "--keep-best {}: METRIC:N, or METRIC:N:highest where more is better", text);
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
  verb->add_option("--keep-last", rules.last, "The newest N commits");
  verb->add_option("--keep-hourly", rules.hourly, "The newest of each of the last N hours");
  verb->add_option("--keep-daily", rules.daily, "The newest of each of the last N days");
  verb->add_option("--keep-weekly", rules.weekly, "The newest of each of the last N weeks");
  verb->add_option("--keep-monthly", rules.monthly, "The newest of each of the last N months");
  verb->add_option("--keep-yearly", rules.yearly, "The newest of each of the last N years");
  verb->add_option("--keep-within", rules.within,
                   "All since the oldest that is dated within 12h, 7d, 2m, 1y6m ... of the newest; "
                   "m: months");
  verb->add_option("--keep-tag", rules.tags, "Those with this tag; may be repeated")
      ->allow_extra_args(false);
  verb->add_option("--keep-every-steps", rules.every_steps,
                   "The first commit of steps 0 to N-1, of N to 2N-1, ...: of each lineage");
  verb->add_option("--keep-best", rules.best,
                   "METRIC:N: the N with the lowest value; METRIC:N:highest; may be repeated")
      ->allow_extra_args(false);
}

Result<Outcome> ask(Link& link, const char* question, const Json& arguments, Printer print) {
  CKPT_ASSIGN(Answer answer, link.ask(question, arguments, kLongTimeoutMs));
  return Outcome{std::move(answer.document), print, answer.exit_code};
}

// A plan that is carried out has one answer, which counts what it has no room for; one that is not
// is listed to its end. What is to be said of the plan as a whole goes to stderr.
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

Result<Outcome> run_prune(Link& link, const KeepArguments& args) {
  CKPT_ASSIGN(const Json rules, rules_document(args.rules));
  Json question{{"target", args.target}, {"dry_run", args.dry_run}};
  if (args.force) question["force"] = true;
  if (!rules.is_null()) question["rules"] = rules;
  Result<Outcome> pruned = ask_plan(link, "prune", question, args.dry_run);
  if (pruned.ok() || !refuses_argument(pruned.error(), "force")) return pruned;
  warn("this ckptd is older and holds nothing for readers: --force is not needed");
  question.erase("force");
  return ask_plan(link, "prune", question, args.dry_run);
}

// The number of commits and bytes to be removed, as a question.
Result<std::string> removal_question(Link& link, Json question) {
  question["dry_run"] = true;
  CKPT_ASSIGN(const Json plan, link.document("rm", question, kLongTimeoutMs));
  const size_t commits = plan.value("removed", Json::array()).size();
  return fmt::format("ckptctl: rm {}: this removes {} with {} for good; go on?",
                     question["target"].get<std::string>(), ckpt::base::counted(commits, "commit"),
                     ckpt::base::format_size(plan.value("bytes", uint64_t{0})));
}

// Asks before a removal, because it cannot be undone: --yes answers, or the terminal.
Result<Outcome> run_rm(Link& link, const KeepArguments& args) {
  const Json question{{"target", args.target}, {"force", args.force}, {"dry_run", args.dry_run}};
  if (!args.dry_run && !args.yes) {
    if (!can_ask()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "rm {}: what it removes is gone for good, and there is no terminal to ask "
                        "at: say --yes, or --dry-run to see what would go",
                        args.target);
    }
    CKPT_ASSIGN(const std::string words, removal_question(link, question));
    if (!confirm(words)) {
      return make_error(ErrorCode::kAborted, "rm {}: nothing was removed", args.target);
    }
  }
  return ask_plan(link, "rm", question, args.dry_run);
}

void add_removal(Builder& build, const std::shared_ptr<KeepArguments>& args) {
  CLI::App* rm = build.add(
      "rm", "Remove a run with all its commits, or one commit",
      "  ckptctl rm tiny --dry-run\n  ckptctl rm tiny\n  ckptctl rm tiny@1200 --force --yes",
      [args](Link& link) { return run_rm(link, *args); });
  // Not from CKPTD_RUN: what goes must be said.
  rm->add_option("target", args->target, "RUN, or a commit")->required();
  rm->add_flag("--force,-f", args->force,
               "Also what is tagged or pinned, the newest view, and where its lineage begins; of "
               "root also what a reader holds");
  rm->add_flag("--yes,-y", args->yes, "Do not ask; needed where there is no terminal");
  rm->add_flag("--dry-run,-n", args->dry_run, "Only say what would be removed");
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
      "unpin", "Leave a commit to the rules again", "  ckptctl unpin tiny@1200", "pin",
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
  // A rule that keeps nothing is a slip, as of a script's variable that is not set: without it, the
  // run's own rules would count.
  for (const auto& [name, count] : counts) {
    if (count == 0) {
      std::string flag = name;
      std::ranges::replace(flag, '_', '-');
      return make_error(ErrorCode::kInvalidArgument, "--keep-{} 0: it would keep nothing", flag);
    }
    if (count) rules[name] = *count;
  }
  if (flags.within) {
    const auto within = ckpt::base::parse_age(*flags.within);
    if (!within) {
      return make_error(within.error().code, "--keep-within: {}", within.error().message);
    }
    rules["within_seconds"] = static_cast<uint64_t>(*within / std::chrono::seconds(1));
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
  keep->add_flag("--none", args->none, "The run has no rules any more");
  CLI::App* prune =
      build.add("prune", "Remove the commits that no rule keeps, and give their space back",
                "  ckptctl prune tiny --dry-run\n  ckptctl prune tiny --keep-last 3",
                [args](Link& link) { return run_prune(link, *args); });
  build.target(prune, args->target, "run", "RUN");
  add_rules(prune, args->rules);
  prune->add_flag("--force,-f", args->force,
                  "Of root: also what a reader holds, as an export does");
  prune->add_flag("--dry-run,-n", args->dry_run, "Only say what would be removed, and why");
  add_removal(build, args);
  add_pins(build, args);
  build.add_question(
      "gc", "Give what was deleted back to the disk now, and say how much that was", "  ckptctl gc",
      "gc", [] { return Json::object(); }, print_gc, kLongTimeoutMs);
}

}  // namespace ckptctl
