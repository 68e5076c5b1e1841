// Declares the verbs of ckptctl. Private to this folder.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/ctl/print.h"
#include "client/ctl/print_daemon.h"
#include "client/ctl/similar_run.h"
#include "client/ctl/verbs.h"

namespace ckptctl {

using Printer = std::string (*)(const Json&);

// Help text: the ways to name a commit.
inline constexpr char kCommitNames[] = "RUN@STEP, RUN~LINEAGE@STEP, RUN@TAG or RUN@latest";

// For a flag that bounds a list: 0 would list nothing, or everything.
inline CLI::Validator at_least_one() {
  return CLI::Validator(
      [](std::string& text) {
        const bool zero = !text.empty() && text.find_first_not_of('0') == std::string::npos;
        return zero ? text + ": must be at least 1" : std::string();
      },
      "");
}

// For verbs that read every live byte or every journal record.
inline constexpr uint32_t kLongTimeoutMs = 24 * 3'600'000;

// How a verb connects.
struct Opening {
  bool for_restore = false;
  // Called before the connection, if the verb has its own timeout (Link::Options).
  std::function<Result<uint32_t>()> patience_ms = {};
  // The verb's own error text for a missing daemon; empty: the reason unchanged.
  std::function<ckpt::Error(const ckpt::Error& reason)> no_daemon = {};
};

class Builder {
 public:
  Builder(CLI::App& app, const Common& common, Verb& chosen)
      : app_(app), common_(common), chosen_(chosen) {}

  CLI::App* add(const char* name, const char* help, const char* examples,
                std::function<Result<Outcome>(Link&)> run, const Opening& opening = {}) {
    CLI::App* verb = app_.add_subcommand(name, help);
    verb->footer(std::string("Examples:\n") + examples);
    verb->fallthrough();
    verb->callback([&common = common_, &chosen = chosen_, verb, targets = targets_,
                    run = std::move(run), opening] {
      if (const auto target = targets->find(verb); target != targets->end()) target->second();
      chosen = [&common, run, opening]() -> Result<Outcome> {
        Link::Options options{.socket = common.socket,
                              .for_restore = opening.for_restore,
                              .page_bytes = common.page_bytes};
        if (opening.patience_ms) {
          CKPT_ASSIGN(options.patience_ms, opening.patience_ms());
        }
        Result<Link> link = Link::open(options);
        if (!link.ok()) return opening.no_daemon ? opening.no_daemon(link.error()) : link.error();
        Result<Outcome> outcome = run(*link);
        if (outcome.ok()) return outcome;
        if (link->expired()) return *link->expired();
        return with_similar_run(*link, outcome.error());
      };
    });
    return verb;
  }
  // A verb that asks the daemon one question and prints the answer.
  CLI::App* add_question(const char* name, const char* help, const char* examples,
                         const char* question, std::function<Json()> arguments, Printer print,
                         uint32_t timeout_ms = 60'000) {
    return add(name, help, examples,
               [question, arguments = std::move(arguments), print,
                timeout_ms](Link& link) -> Result<Outcome> {
                 CKPT_ASSIGN(Answer answer, link.ask(question, arguments(), timeout_ms));
                 return Outcome{std::move(answer.document), print, answer.exit_code};
               });
  }
  // A question whose answer may have any length, in pages.
  CLI::App* add_listing(const char* name, const char* help, const char* examples,
                        const char* question, std::function<Json()> arguments, Printer print) {
    return add(name, help, examples,
               [question, arguments = std::move(arguments), print](Link& link) -> Result<Outcome> {
                 CKPT_ASSIGN(Json document, link.document(question, arguments()));
                 return Outcome{std::move(document), print, 0};
               });
  }
  // The run or view of a verb: from the command line, or else CKPTD_RUN. CLI11's envname() would
  // fill the options of all verbs, which share their variables, after the command line was read.
  // `next`: a further required argument.
  struct Next {
    std::string& into;
    const char* name;
    const char* help;
  };
  void target(CLI::App* verb, std::string& into, const std::string& name, const std::string& help,
              const std::optional<Next>& next = {}) {
    verb->add_option(name, into, help + " (default: CKPTD_RUN)");
    if (next) verb->add_option(next->name, next->into, next->help);
    const auto from_environment = [&into, name, next] {
      const bool given = !into.empty() && (!next || !next->into.empty());
      const char* run = given ? nullptr : std::getenv("CKPTD_RUN");
      if (run != nullptr && *run != '\0') {
        if (next && next->into.empty()) next->into = into;
        into = run;
      }
      if (into.empty()) throw CLI::RequiredError(name);
      if (next && next->into.empty()) throw CLI::RequiredError(next->name);
    };
    targets_->emplace(verb, from_environment);
  }

 private:
  CLI::App& app_;
  const Common& common_;
  Verb& chosen_;
  // Action of each verb on its target, before the verb runs.
  using Targets = std::map<const CLI::App*, std::function<void()>>;
  const std::shared_ptr<Targets> targets_ = std::make_shared<Targets>();
};

}  // namespace ckptctl
