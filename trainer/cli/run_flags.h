// The flags of `moetrain run` on a command line, as CLI11 reads them into a RunSpec.
#pragma once

#include "trainer/cli/run_spec.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 has it so
class App;
}

namespace moetrain {

// Adds the flags to the command. The spec must outlive the command's parsing.
void add_run_flags(CLI::App& command, RunSpec& spec);

// After parsing: records in the spec which flags were given, on the command line or in environment
// variables.
void record_given_flags(const CLI::App& command, RunSpec& spec);

}  // namespace moetrain
