#include "client/ctl/wait_verb.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "client/ctl/flag_values.h"
#include "client/ctl/print_values.h"
#include "client/ctl/say.h"
#include "client/ctl/wait_time.h"
#include "formats/selector.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

struct WaitArguments {
  std::string target;
  std::string level = "durable";
  std::string timeout = "60s";
  WaitTime time{std::chrono::nanoseconds(0)};  // starts before the connection
};

// True if waiting may help: a daemon may start, or answer later.
bool is_retryable(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded;
}

ckpt::Error not_in_time(const WaitArguments& args, const ckpt::Error& reason) {
  return with_detail(
      make_error(ErrorCode::kDeadlineExceeded, "{}: not {} within {} (--timeout): {}", args.target,
                 args.level, args.timeout, reason.message),
      reason.detail);
}

// Progress of the run, for the message of an expired wait; empty if unknown.
std::string progress_of(Link& link, const std::string& run) {
  constexpr uint32_t kAnswerMs = 1'000;  // in addition to the timeout
  const Result<Answer> status = link.ask("status", Json::object(), kAnswerMs);
  if (!status.ok()) return {};
  for (const Json& state : member(status->document, "durable")) {
    if (member(state, "run") != run) continue;
    std::string words = member(state, "step").is_null()
                            ? "; no step of the run is durable yet"
                            : fmt::format("; its last durable step is {}, {} old",
                                          text(state, "step"), age(state, "age_seconds"));
    words += member(state, "trained") == true ? "" : "; no process trains it now";
    if (const Json failing = member(state, "failing"); failing.is_object()) {
      words += fmt::format("; {} failed since: {}", counted(failing, "snapshots", "snapshot"),
                           text(failing, "reason"));
    }
    return words;
  }
  return {};
}

// Why the commit does not exist.
struct Missing {
  ckpt::Error reason;
  bool answered = false;  // the reason is the daemon's answer
};

// Polls until the commit exists. Only durable commits are history, so there is no other level. An
// unknown run may be about to start, and a missing daemon may come back: both are waited for. An
// unknown name may be a typing error, so that is reported at once.
Result<Outcome> run_wait(Link& link, const WaitArguments& args) {
  // A request with less time than this says nothing about the daemon if no answer comes.
  constexpr uint32_t kFairMs = 500;
  CKPT_ASSIGN(const ckpt::Selector selector, ckpt::parse_selector(args.target));
  std::optional<Missing> missing;
  for (bool reported = false;;) {
    const uint32_t ms = missing ? args.time.ms_left() : args.time.ms_left_at_first();
    Result<Json> view = link.head("show", {{"target", args.target}}, ms);
    if (view.ok()) {
      Json document{{"run", (*view)["run"]},
                    {"step", (*view)["step"]},
                    {"lineage", (*view)["lineage"]},
                    {"level", args.level}};
      return Outcome{std::move(document), print_wait, 0};
    }
    const ckpt::Error& error = view.error();
    const bool answered = error.code == ErrorCode::kNotFound;
    if (!answered && !is_retryable(error.code)) return error;
    if (answered && !std::exchange(reported, true)) {
      say("waiting up to {} for {}: {}", args.timeout, args.target, error.message);
    }
    if (!missing || answered || ms >= kFairMs) {
      missing = Missing{error, answered};
    }
    if (args.time.over()) {
      if (missing->answered) missing->reason.message += progress_of(link, selector.run);
      return not_in_time(args, missing->reason);
    }
    std::this_thread::sleep_until(
        std::min(args.time.end(), WaitTime::Clock::now() + std::chrono::milliseconds(50)));
  }
}

}  // namespace

void add_wait(Builder& build) {
  const auto args = std::make_shared<WaitArguments>();
  CLI::App* wait =
      build.add("wait", "Wait until a commit is durable; its run need not exist yet",
                "  ckptctl wait tiny@1200 --level durable --timeout 10m",
                [args](Link& link) { return run_wait(link, *args); },
                {.patience_ms = [args]() -> Result<uint32_t> {
                   CKPT_ASSIGN(const auto timeout, time_value("--timeout", args->timeout));
                   args->time = WaitTime(timeout);
                   return args->time.ms_left_at_first();
                 },
                 .no_daemon = [args](const ckpt::Error& reason) -> ckpt::Error {
                   return is_retryable(reason.code) ? not_in_time(*args, reason) : reason;
                 }});
  wait->add_option("commit", args->target, kCommitNames)->required();
  wait->add_option("--level", args->level, "Level to wait for; durable is the only one")
      ->check(CLI::IsMember({"durable"}))
      ->capture_default_str();
  wait->add_option("--timeout", args->timeout,
                   "Fail after this time, also where ckptd does not answer: 10s, 5m, 2h (the first "
                   "question has at least 1s)")
      ->capture_default_str();
}

}  // namespace ckptctl
