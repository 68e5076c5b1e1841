// The command lines of the benches that run moetrain.
#pragma once

#include <CLI/CLI.hpp>

#include "bench/research/kills.h"
#include "bench/research/placement.h"
#include "bench/research/sharded.h"
#include "bench/research/step.h"

namespace bench {

// The subcommand of `app`. The options and `as_json`, which --json sets, outlive it.
CLI::App* add_placement(CLI::App& app, PlacementBenchOptions& options, bool& as_json);
CLI::App* add_kills(CLI::App& app, KillsOptions& kills, bool& as_json);
CLI::App* add_sharded(CLI::App& app, ShardedOptions& sharded, bool& as_json);
CLI::App* add_step(CLI::App& app, StepOptions& step, bool& as_json);

}  // namespace bench
