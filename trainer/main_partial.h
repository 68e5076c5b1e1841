// The flags of partial checkpoints.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "trainer/checkpoint/partial_checkpoint.h"

namespace moetrain {

struct PartialFlags {
  std::string experts_per_checkpoint = "all";
  std::string experts_per_snapshot;  // empty: as many as are written
  std::string selector = "risk-aware";
  std::string parts = "both";
  std::string dense_sharding = "bytes";
  PartialOptions numbers;  // those that need no reading

  void add_to(CLI::App& command);
  // kInvalidArgument for what cannot be with any number of experts; validate() tells the rest.
  Result<PartialOptions> parse() const;
};

}  // namespace moetrain
