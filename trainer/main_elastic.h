// The flags of `moetrain run` about groups that change.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/elastic/supervisor.h"

namespace moetrain {

struct ElasticFlags {
  std::optional<std::string> on_loss;  // unless it is said: continue
  std::vector<std::string> kills_in;
  std::vector<std::string> joins;
  std::vector<std::string> leaves;
  std::string unsaved_max;
  std::string on_unsaved = "warn";

  // Some go straight into `options`.
  void add_to(CLI::App& command, RunOptions& options);
  // After all that is known of devices and checkpoints. kInvalidArgument names the flag: a value
  // that is none, or one that needs --on-loss continue.
  Status apply(RunOptions& options) const;

 private:
  void choose(RunOptions& options) const;
  Status parse_changes(RunOptions& options) const;
};

// A disaster that was asked for and cannot happen would be a test that tests nothing: every rank
// that is killed or leaves is there by then, with those who have joined, and every step is one of
// the run's, which begins with `first_step`; what happens after a step has one that follows.
// kInvalidArgument names the flag.
Status check_changes(const RunOptions& options, uint64_t first_step);

}  // namespace moetrain
