// ckptctl: the command line of ckptd. Data goes to stdout, everything else to stderr; exit codes: 0
// done, 1 failed, 2 bad usage, 3 not found, 4 integrity error.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "client/ctl/say.h"
#include "client/ctl/verbs.h"
#include "formats/base/cli_errors.h"
#include "formats/base/cli_flags.h"
#include "formats/base/cli_numbers.h"
#include "formats/base/console.h"
#include "formats/base/json_dump.h"
#include "formats/base/program.h"
#include "formats/base/unix_address.h"
#include "formats/base/version.h"

namespace {

// Names the verb that lists what was not found; empty if the error says so itself.
std::string_view next_step(const ckpt::Error& error) {
  return error.detail == ckpt::ErrorDetail::kNoSuchRun ? "; `ckptctl runs` lists them" : "";
}

// A lost output of these verbs does not mean that nothing was done.
bool changes_something(std::string_view verb) {
  constexpr std::array<std::string_view, 12> kChanging = {"export", "gc",  "grant", "import",
                                                          "keep",   "pin", "prune", "rebuild",
                                                          "rm",     "tag", "unpin", "untag"};
  return std::ranges::find(kChanging, verb) != kChanging.end();
}

int run(int argc, char** argv) {
  CLI::App app("List, check, export, import, tag and remove the checkpoints that ckptd stores.",
               "ckptctl");
  app.require_subcommand(1);
  app.set_version_flag("--version", ckpt::base::version_text("ckptctl"));
  app.footer(
      "Name the socket with --socket or CKPTD_SOCKET. Verbs whose help says so take the run from\n"
      "CKPTD_RUN if the command line names none. ckptctl trusts a daemon that root or you run;\n"
      "if another user runs it, set CKPTD_UID to the id of that user.\n"
      "`ckptctl VERB --help` shows examples.");
  ckptctl::Common common;
  app.add_option("--socket", common.socket, "Socket of the daemon: unix:PATH")
      ->envname("CKPTD_SOCKET")
      ->check([](const std::string& socket) {
        const bool none = ckpt::base::unix_socket_path(socket).empty();
        return none ? fmt::format("'{}' should be unix:PATH", socket) : std::string();
      });
  app.add_flag("--json", common.json, "Print one JSON document on stdout");
  app.add_option("-o,--output", common.output, "Print a table or json (default: table)")
      ->check(CLI::IsMember({"table", "json"}));
  app.add_option("--page-bytes", common.page_bytes)->group("");  // for tests: nobody needs less
  ckptctl::Verb verb;
  ckptctl::add_verbs(app, common, verb);
  ckpt::base::refuse_wrapped_numbers(app);
  ckpt::base::refuse_empty_values(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ckpt::base::report_usage(app, error);
  }
  const ckpt::Result<ckptctl::Outcome> outcome = verb();
  if (!outcome.ok()) {
    ckptctl::say("{}{}", outcome.error().message, next_step(outcome.error()));
    return ckpt::exit_code_for(outcome.error().code);
  }
  if (common.wants_json()) {
    ckpt::base::write_stdout_exactly(ckpt::base::dump_json(outcome->document, 2) + "\n");
  } else {
    ckpt::base::write_stdout(outcome->print(outcome->document));
  }
  const std::string verb_name = app.get_subcommands().front()->get_name();
  if (ckpt::base::flush_stdout() != 0 && outcome->exit_code == 0 && changes_something(verb_name)) {
    ckptctl::say("{}: the command itself has succeeded, only its output is lost", verb_name);
  }
  return outcome->exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  return ckpt::base::run_program("ckptctl", [&] { return run(argc, argv); });
}
