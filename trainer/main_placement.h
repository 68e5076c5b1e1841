// The flags that say where experts are.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "trainer/elastic/rank_options.h"
#include "trainer/parallel/planned_placement.h"

namespace moetrain {

struct PlacementFlags {
  std::string policy = "static";
  PlacementOptions numbers;  // those that need no reading
  std::optional<uint64_t> replan_every;
  std::string replan_if = "pays";
  std::string domains_file;

  void add_to(CLI::App& command);
  // kInvalidArgument: no such policy, or more slots than there may be.
  Result<PlacementOptions> parse() const;
  // Which processes are on one node, if a file says so. kInvalidArgument names file and line.
  Result<NodeOfProcess> read_nodes() const;
  // Fills rank.replan_*; the rest of `rank` has been read. kInvalidArgument: re-planning was asked
  // for where nothing can move, or by times that nobody measures.
  Status apply_replan(RankOptions& rank) const;
  // Whether a resumed run's history has a say.
  bool asks_for_loads() const { return policy != "static"; }
};

// The slots that `rank` is to be told, for a run of this configuration, planned from what its
// experts were given so far (empty: not known). Errors: those of plan_experts(), and
// kInvalidArgument for a placement that is too large for the trainer unit.
Result<std::vector<LayerSlots>> plan_for_run(const PlacementOptions& options,
                                             const TrainConfig& config, const RankGroup& group,
                                             std::span<const int64_t> routed);

}  // namespace moetrain
