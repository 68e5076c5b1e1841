// moetrain: the trainer's command line. One function per command; see cli.md's table in README.md.
#include "trainer/main.h"

#include <CLI/CLI.hpp>

#include "formats/base/cli_errors.h"
#include "formats/base/cli_numbers.h"
#include "formats/base/program.h"
#include "formats/base/version.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app("Trains Mixture-of-Experts models that survive the loss of workers.", "moetrain");
  app.require_subcommand(1);
  app.set_version_flag("--version", ckpt::base::version_text("moetrain"));
  app.footer(
      "Exit codes: 0 done, 1 failed, 2 bad usage, 3 not found, 4 integrity error, 128+n stopped "
      "by\n"
      "signal n before the end.\n"
      "`moetrain COMMAND --help` shows a command's options and examples.");
  moetrain::ExitCode exit_code;
  moetrain::add_run_command(app, exit_code);
  moetrain::add_eval_command(app, exit_code);
  moetrain::add_plan_command(app, exit_code);
  moetrain::add_report_command(app, exit_code);
  moetrain::add_simulate_command(app, exit_code);
  moetrain::add_calibrate_command(app, exit_code);
  moetrain::add_rank_command(app, exit_code);
  ckpt::base::refuse_wrapped_numbers(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ckpt::base::report_usage(app, error);
  }
  return exit_code.value;
}

}  // namespace

int main(int argc, char** argv) {
  return ckpt::base::run_program("moetrain", [&] { return run(argc, argv); });
}
