// The flags of partial checkpoints.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "trainer/checkpoint/partial_checkpoint.h"
#include "trainer/elastic/rank_options.h"

namespace moetrain {

struct PartialFlags {
  std::string experts_per_checkpoint = "all";
  std::string experts_per_snapshot;  // empty: as many as are written
  std::string selector = "risk-aware";
  std::string parts = "both";
  std::string dense_sharding = "bytes";
  PartialOptions numbers;  // those that need no reading
  std::string checkpoint_every = "10";
  uint64_t checkpoint_turns = 0;
  std::vector<const CLI::Option*> of_selection;

  void add_to(CLI::App& command);
  // Those of the flags that are about which experts are taken, where all of them are: they do
  // nothing.
  std::vector<std::string> without_effect() const;
  // kInvalidArgument for what cannot be with any number of experts; validate() tells the rest.
  Result<PartialOptions> parse() const;
  // --checkpoint-every, into what a rank is told.
  Status parse_every(RankOptions& rank) const;
};

}  // namespace moetrain
