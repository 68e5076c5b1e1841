// Command lines of `moetrain run` as specs, without a process, and facts for them.
#pragma once

#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "trainer/cli/run_flags.h"
#include "trainer/model/presets.h"

namespace moetrain::test {

using Flags = std::vector<std::string>;

// The spec of a command line in which only `flags` are set.
inline RunSpec spec_of(Flags flags) {
  RunSpec spec;
  CLI::App command;
  add_run_flags(command, spec);
  std::reverse(flags.begin(), flags.end());  // CLI11 takes the arguments from the back
  command.parse(flags);
  record_given_flags(command, spec);
  return spec;
}

// Clears the variables that flags can come from.
inline void clear_environment() {
  ::unsetenv("CKPTD_SOCKET");
  ::unsetenv("CKPTD_RUN");
}

// A machine with two GPUs, and data that fits every preset.
inline RunFacts machine_facts() {
  RunFacts facts;
  facts.gpus = GpuFacts{.count = 2};
  facts.data = DataFacts{.paths = {"book.txt"}, .bytes = 1 << 20, .crc32c = 7};
  return facts;
}

// A run of the preset `tiny` that was saved at step 40, with the data of machine_facts().
inline SavedRun saved_run() {
  SavedRun saved{.step = 40, .lineage = 3};
  saved.config.model = *preset("tiny");
  saved.config.micro_batches = 1;
  saved.config.batch = 8;
  return saved;
}

inline CommitState commit_state() { return {.data_bytes = 1 << 20, .data_crc32c = 7}; }

inline RunFacts resumed_facts() {
  RunFacts facts = machine_facts();
  facts.commit = saved_run();
  facts.commit_state = commit_state();
  return facts;
}

}  // namespace moetrain::test
