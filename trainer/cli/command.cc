#include "trainer/cli/command.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <thread>

#include "formats/base/address_space.h"
#include "formats/base/cli_errors.h"
#include "formats/base/cli_flags.h"
#include "formats/base/cli_numbers.h"
#include "formats/base/console.h"
#include "formats/base/parse.h"
#include "formats/base/version.h"
#include "trainer/checkpoint/saved_run.h"

namespace moetrain {

int fail(const ckpt::Error& error) {
  ckpt::base::print_stderr("moetrain: {}\n", error.message);
  return ckpt::exit_code_for(error.code);
}

int exit_code_of(const Result<int>& result) { return result.ok() ? *result : fail(result.error()); }

Status await_given_ckptd(const std::string& socket, const std::string& run) {
  return await_ckptd(socket, run, [](const std::string& line) {
    ckpt::base::print_stderr("moetrain: {}\n", line);
  });
}

Result<std::string> read_text(const std::string& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (exists(status) && !is_regular_file(status)) {  // opening a pipe would wait for its writer
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                            "{}: not a regular file; - reads standard input", path);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return ckpt::make_error(ckpt::ErrorCode::kNotFound, "{}: cannot be opened", path);
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: cannot be read", path);
  return std::move(text).str();
}

namespace {

// OpenBLAS takes 128 MiB of address space for each core while the program is loaded, and where it
// cannot, a thread of it tries for ever. Exits here, since a normal end would wait for that thread.
void require_address_space() {
  const uint64_t wanted = (512ull + 128ull * std::thread::hardware_concurrency()) << 20;
  const auto limit = ckpt::base::address_space_limit();
  if (!limit || *limit >= wanted) return;
  ckpt::base::print_stderr("moetrain: it needs an address space of {} or more here{}\n",
                           ckpt::base::format_size(wanted), ckpt::base::address_space_hint());
  std::_Exit(EXIT_FAILURE);
}

}  // namespace

int run_command_line(int argc, char** argv) {
  require_address_space();
  CLI::App app("Trains Mixture-of-Experts models that survive the loss of workers.", "moetrain");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 failed, 2 bad usage, 3 not found, 4 integrity error, 128+n stopped "
      "by\n"
      "signal n before the end.\n"
      "`moetrain COMMAND --help` shows a command's options and examples.");
  ExitCode exit_code;
  add_run_command(app, exit_code);
  add_eval_command(app, exit_code);
  add_plan_command(app, exit_code);
  add_report_command(app, exit_code);
  add_simulate_command(app, exit_code);
  add_calibrate_command(app, exit_code);
  add_rank_command(app, exit_code);
  ckpt::base::add_version_flag(app, ckpt::base::version_text("moetrain"));
  ckpt::base::refuse_wrapped_numbers(app);
  ckpt::base::refuse_empty_values(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ckpt::base::report_usage(app, error);
  }
  return exit_code.value;
}

}  // namespace moetrain
