// The flags of `moetrain run` about groups that change.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "trainer/elastic/supervisor.h"

namespace moetrain {

struct ElasticFlags {
  std::string on_loss = "restart";
  std::vector<std::string> kills_in;
  std::vector<std::string> joins;
  std::vector<std::string> leaves;

  // Some go straight into `options`.
  void add_to(CLI::App& command, RunOptions& options);
  // kInvalidArgument names the flag: a value that is none, or one that needs --on-loss continue.
  Status apply(RunOptions& options) const;

 private:
  Status parse_changes(RunOptions& options) const;
};

}  // namespace moetrain
