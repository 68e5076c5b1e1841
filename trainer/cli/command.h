// The command line of moetrain: one function per command, each in the source file of its name.
#pragma once

#include <string>

#include "formats/base/result.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 has it so
class App;
}

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

// Runs the command that the arguments name; returns the exit code of the program.
int run_command_line(int argc, char** argv);

struct ExitCode {
  int value = 0;
};

// Each of these adds its command to the app. The command stores its exit code when it has run.
void add_run_command(CLI::App& app, ExitCode& exit_code);
void add_eval_command(CLI::App& app, ExitCode& exit_code);
void add_plan_command(CLI::App& app, ExitCode& exit_code);
void add_report_command(CLI::App& app, ExitCode& exit_code);
void add_simulate_command(CLI::App& app, ExitCode& exit_code);
void add_calibrate_command(CLI::App& app, ExitCode& exit_code);
// Not in the help: the supervisor of `run` starts its ranks with it.
void add_rank_command(CLI::App& app, ExitCode& exit_code);

// Prints the error on stderr and returns its documented exit code.
int fail(const ckpt::Error& error);
// The exit code of a command that returned this. Prints the error, if it is one.
int exit_code_of(const Result<int>& result);

// Waits until the ckptd at `socket` answers; prints a line on stderr if it does not answer at once.
// The error is the client's.
Status await_given_ckptd(const std::string& socket, const std::string& run);

// The text of a regular file that a flag names; `-` is stdin. kNotFound: the file cannot be opened;
// kInvalidArgument: it is another kind of file.
Result<std::string> read_text(const std::string& path);

}  // namespace moetrain
