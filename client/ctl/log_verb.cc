#include "client/ctl/log_verb.h"

#include <utility>

#include "client/ctl/say.h"
#include "formats/selector.h"

namespace ckptctl {
namespace {

struct LogArguments {
  std::string target;
  uint64_t limit = 0;
  bool all = false;
  bool deleted = false;
};

// Notes lineages that are not listed: the current line of history hides commits made before the run
// was resumed from an older step.
Status note_unlisted_lineages(Link& link, const std::string& target) {
  const Json question{{"target", target}, {"lineages", "others"}, {"limit", 1}};
  CKPT_ASSIGN(const Json others, link.document("log", question));
  if (!others.empty()) say("commits of other lineages are not listed; --all lists them");
  return ckpt::ok_status();
}

// Asks for the log. A daemon of the previous version knows no lines of history and lists the
// commits of all lineages, or of the lineage in the target; `understood` is false then.
Result<Json> ask_log(Link& link, Json question, bool& understood) {
  Result<Json> log = link.document("log", question);
  understood = log.ok() || !refuses_argument(log.error(), "lineages");
  if (understood) return log;
  warn("this ckptd is older and cannot list one line of history: the list has {}; upgrade ckptd",
       question["target"].get<std::string>().find('~') == std::string::npos
           ? "the commits of every lineage"
           : "this lineage without its ancestors");
  question.erase("lineages");
  return link.document("log", question);
}

Result<Outcome> run_log(Link& link, const LogArguments& args) {
  CKPT_ASSIGN(const ckpt::Selector selector, ckpt::parse_selector(args.target));
  const bool whole_run = selector.kind == ckpt::Selector::Kind::kRun;
  if (args.all && (!whole_run || selector.lineage != 0)) {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                            "--all lists every lineage of a run: give the run alone, {}, not {}",
                            selector.run, args.target);
  }
  Json question{{"target", args.target}};
  if (args.limit > 0) question["limit"] = args.limit;
  if (args.deleted) question["deleted"] = true;
  if (!args.deleted && !args.all) question["lineages"] = "line";
  bool understood = true;
  CKPT_ASSIGN(Json document, ask_log(link, std::move(question), understood));
  if (understood && !args.deleted && !args.all && whole_run) {
    CKPT_TRY(note_unlisted_lineages(link, args.target));
  }
  return Outcome{std::move(document), print_log, 0};
}

}  // namespace

void add_log(Builder& build) {
  const auto args = std::make_shared<LogArguments>();
  CLI::App* log = build.add("log", "List the commits of a run's line of history, newest first",
                            "  ckptctl log tiny\n"
                            "  ckptctl log tiny --all\n"
                            "  ckptctl log tiny~2",
                            [args](Link& link) { return run_log(link, *args); });
  build.target(log, args->target, "run",
               "RUN (its current lineage), RUN~LINEAGE, or a commit; ancestors are listed, too");
  log->add_flag("--all,-a", args->all, "List every lineage of the run, as a tree");
  log->add_flag("--deleted", args->deleted, "List removed commits, with time and reason");
  log->add_option("--limit,-n", args->limit, "List at most this many commits (default: all)")
      ->check(at_least_one());
}

}  // namespace ckptctl
