#include "bench/research/routing_flags.h"

namespace bench {

CLI::App* add_plt(CLI::App& app, PltOptions& plt, bool& as_json) {
  CLI::App* command = app.add_subcommand(
      "plt", "expected lost tokens of the selectors, exact, on a trace of routing counts");
  command->add_option("--trace", plt.trace, "CSV: iteration,layer,e0,e1,...; may be gzipped")
      ->required();
  command->add_option("--k", plt.ks, "experts of each layer per snapshot (1 2 4)");
  const auto count = [&](const char* flag, uint32_t* to, const char* help) {
    command->add_option(flag, *to, help)->capture_default_str();
  };
  count("--interval", &plt.interval, "samples between snapshots");
  count("--staleness-max", &plt.staleness_max, "snapshots between saves of an expert; 0: 4 N/K");
  count("--ranks", &plt.ranks, "ranks, up to 20");
  count("--slots", &plt.slots_per_rank, "expert slots of a rank");
  count("--replicas-min", &plt.replicas_min, "replicas of every expert, at least");
  count("--replan", &plt.replan, "samples between placements");
  count("--dead-max", &plt.dead_max, "failures take 1 to this many ranks; 0: 4, or all if fewer");
  command->add_flag("--placements", plt.placements, "print the placements (JSON)");
  command->add_flag("--json", as_json, "one JSON document on stdout");
  return command;
}

CLI::App* add_plan(CLI::App& app, PlanOptions& plan, bool& as_json) {
  CLI::App* command = app.add_subcommand(
      "plan", "balance, joint recovery and planning time of the placement policies");
  command->add_option("--loads-file", plan.loads_file,
                      "CSV: iteration,layer,e0,e1,...; may be gzipped (a synthetic trace)");
  command->add_option("--ranks", plan.ranks, "ranks, 5 to 20")->capture_default_str();
  command->add_option("--slots", plan.slots_per_rank, "expert slots of a rank")
      ->capture_default_str();
  command->add_option("--min-replicas", plan.replicas_min, "replicas of every expert, at least")
      ->capture_default_str();
  command->add_option("--every", plan.every, "samples between plans")->capture_default_str();
  command->add_option("--lags", plan.lags, "samples from a plan to its use (0 10 18)");
  command->add_flag("!--no-times", plan.times, "skip the planning times at up to 1,024 ranks");
  command->add_flag("--json", as_json, "one JSON document on stdout");
  return command;
}

CLI::App* add_relayout(CLI::App& app, RelayoutOptions& relayout, bool& as_json) {
  CLI::App* command = app.add_subcommand(
      "relayout", "balance and planning time where every step has a placement of its own");
  command->add_option("--loads-file", relayout.loads_file,
                      "CSV: iteration,layer,e0,e1,...; may be gzipped (Zipf loads only)");
  command->add_option("--layers-every", relayout.layers_every, "use every Nth layer of the file")
      ->capture_default_str();
  command->add_flag("--bounded-only", relayout.bounded_only, "only the rows that have a bound");
  command->add_flag("!--no-times", relayout.times, "skip the planning times");
  command->add_flag("--json", as_json, "one JSON document on stdout");
  return command;
}

}  // namespace bench
