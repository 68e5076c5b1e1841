#include "client/ctl/scrub_verb.h"

#include <chrono>
#include <thread>

#include "client/ctl/flag_values.h"
#include "client/ctl/progress.h"
#include "client/ctl/verb_builder.h"

namespace ckptctl {
namespace {

struct ScrubArguments {
  std::string rate;
  bool status = false;
};

// Poll interval for the state of a pass.
constexpr std::chrono::milliseconds kScrubPollInterval{100};

uint64_t number(const Json& object, const char* name) {
  return object.is_object() ? object.value(name, uint64_t{0}) : 0;
}

Outcome outcome_of(Answer answer) {
  return Outcome{std::move(answer.document), print_scrub, answer.exit_code};
}

// Starts a pass and waits until it, or a later pass, has ended. The daemon completes the pass even
// if this program ends.
Result<Outcome> run_pass(Link& link, const ScrubArguments& args) {
  Json question{{"start", true}};
  if (!args.rate.empty()) {
    CKPT_ASSIGN(const uint64_t rate, size_value("--rate", args.rate));
    if (rate == 0) {
      return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                              "--rate 0: should be more than 0, or nothing is read");
    }
    question["bytes_per_second"] = rate;
  }
  CKPT_ASSIGN(const Answer begun, link.ask("scrub", question));
  const uint64_t pass = number(begun.document, "begun");
  Progress progress("scrub");
  progress.start(number(begun.document, "store_bytes"));
  for (uint64_t drawn = 0;;) {
    CKPT_ASSIGN(Answer answer, link.ask("scrub", Json::object()));
    if (number(answer.document["last_pass"], "number") >= pass) {
      progress.finish();
      return outcome_of(std::move(answer));
    }
    if (number(answer.document["pass"], "number") < pass) {
      return ckpt::make_error(ckpt::ErrorCode::kUnavailable,
                              "scrub: ckptd was restarted and has lost pass {}: start it again",
                              pass);
    }
    const uint64_t checked = number(answer.document["pass"], "checked_bytes");
    progress.add(checked > drawn ? checked - drawn : 0);
    drawn = checked;
    std::this_thread::sleep_for(kScrubPollInterval);
  }
}

Result<Outcome> run_scrub(Link& link, const ScrubArguments& args) {
  if (!args.status) return run_pass(link, args);
  CKPT_ASSIGN(Answer answer, link.ask("scrub", Json::object()));
  return outcome_of(std::move(answer));
}

}  // namespace

void add_scrub(Builder& build) {
  const auto args = std::make_shared<ScrubArguments>();
  CLI::App* scrub = build.add(
      "scrub", "Read the whole store back at a bounded rate; exit code 4 if something is damaged",
      "  ckptctl scrub\n  ckptctl scrub --rate 500MiB\n  ckptctl scrub --status",
      [args](Link& link) { return run_scrub(link, *args); });
  CLI::Option* rate = scrub->add_option(
      "--rate", args->rate,
      "Read at most this much per second, as in 500MiB (default: scrub_rate of ckptd)");
  scrub
      ->add_flag("--status", args->status,
                 "Start no pass; show when the last one ended and what is damaged")
      ->excludes(rate);
}

}  // namespace ckptctl
