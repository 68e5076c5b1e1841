// The command lines of the benches that take traces of routing counts.
#pragma once

#include <CLI/CLI.hpp>

#include "bench/research/plan.h"
#include "bench/research/plt.h"
#include "bench/research/relayout.h"

namespace bench {

// The subcommand of `app`. The options and `as_json`, which --json sets, outlive it.
CLI::App* add_plt(CLI::App& app, PltOptions& plt, bool& as_json);
CLI::App* add_plan(CLI::App& app, PlanOptions& plan, bool& as_json);
CLI::App* add_relayout(CLI::App& app, RelayoutOptions& relayout, bool& as_json);

}  // namespace bench
