// moetrain plan: places experts for given loads, and judges balance and recovery of the placement.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "formats/base/console.h"
#include "formats/base/counted.h"
#include "formats/base/json_dump.h"
#include "trainer/cli/command.h"
#include "trainer/cli/plan_request.h"
#include "trainer/placement/frontier.h"
#include "trainer/placement/judge.h"
#include "trainer/placement/picture.h"
#include "trainer/report/progress.h"
#include "trainer/report/report.h"
#include "trainer/report/text.h"

namespace moetrain {

using nlohmann::ordered_json;

namespace {

// Layers without any routed token. They are planned as if their experts had equal loads.
std::vector<size_t> layers_without_tokens(const PlacementRequest& request) {
  std::vector<size_t> layers;
  for (size_t layer = 0; layer < request.loads.size(); ++layer) {
    if (has_no_load(request.loads[layer])) layers.push_back(layer);
  }
  return layers;
}

void say_equal_loads(const PlacementRequest& request) {
  const std::vector<size_t> layers = layers_without_tokens(request);
  if (layers.empty()) return;
  const std::string which = layers.size() == request.loads.size()
                                ? "no expert has any load"
                                : fmt::format("{} of {} layers, the first of them {}, have no load",
                                              layers.size(), request.loads.size(), layers.front());
  ckpt::base::print_stderr("moetrain plan: {}: planned as if experts had equal loads\n", which);
}

ordered_json recovery_json(const std::vector<RecoveryAt>& recovery) {
  ordered_json all = ordered_json::array();
  for (const RecoveryAt& at : recovery) {
    ordered_json one = {{"failed", at.failed}, {"probability", at.probability}};
    if (at.error > 0) one["error"] = at.error;
    all.push_back(std::move(one));
  }
  return all;
}

ordered_json plan_json(const PlanFlags& flags, const std::vector<LayerSlots>& layers,
                       const Judgement& judgement, double planning_ms) {
  ordered_json document = {{"policy", flags.policy}};
  if (flags.loads_file.empty()) {
    document["replicas"] = judgement.layers[0].replicas;
    document["ranks"] = layers[0];
    document["max_over_mean"] = judgement.max_over_mean;
  } else {
    ordered_json all = ordered_json::array();
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const LayerJudgement& one = judgement.layers[layer];
      all.push_back({{"layer", layer},
                     {"replicas", one.replicas},
                     {"ranks", layers[layer]},
                     {"max_over_mean", one.max_over_mean}});
    }
    document["layers"] = std::move(all);
    document["max_over_mean"] = judgement.max_over_mean;
    document["max_over_mean_worst"] = judgement.max_over_mean_worst;
  }
  document["recovery"] = recovery_json(judgement.recovery);
  document["planning_ms"] = planning_ms;
  const std::vector<size_t> equal = layers_without_tokens(flags.request);
  if (!equal.empty()) document["equal_loads_assumed"] = equal;
  if (!flags.request.current.empty()) document["replicas_to_move"] = judgement.replicas_to_move;
  return document;
}

Result<int> show_frontier(const PlanFlags& flags) {
  CKPT_ASSIGN(const std::vector<FrontierPoint> points, frontier_points(flags.request));
  ordered_json rows = ordered_json::array();
  std::string text = "max/mean   worst layer   joint recovery by failures\n";
  for (const FrontierPoint& point : points) {
    ordered_json recovery = ordered_json::array();
    text += fmt::format("{:8.4f}   {:11.4f}  ", point.max_over_mean, point.max_over_mean_worst);
    for (size_t k = 0; k < point.recovery.size(); ++k) {
      recovery.push_back({{"failed", k + 1}, {"probability", point.recovery[k]}});
      if (k < 6) text += fmt::format("  {}: {:.4f}", k + 1, point.recovery[k]);
    }
    text += "\n";
    rows.push_back({{"max_over_mean", point.max_over_mean},
                    {"max_over_mean_worst", point.max_over_mean_worst},
                    {"recovery", std::move(recovery)}});
  }
  const ordered_json document = {{"policy", "frontier"}, {"points", std::move(rows)}};
  if (flags.json) {
    ckpt::base::write_stdout_exactly(ckpt::base::dump_json(document) + "\n");
  } else {
    ckpt::base::write_stdout(text);
  }
  return 0;
}

Result<int> plan(PlanFlags& flags) {
  CKPT_ASSIGN(const PolicyName policy, parse_policy(flags.policy));
  CKPT_TRY(check_plan_flags(flags, policy));
  CKPT_TRY(fill_request(flags));
  say_equal_loads(flags.request);
  if (flags.frontier) return show_frontier(flags);
  const auto begin = std::chrono::steady_clock::now();
  CKPT_ASSIGN(const std::vector<LayerSlots> layers, plan_placement(policy, flags.request));
  const std::chrono::duration<double, std::milli> planning =
      std::chrono::steady_clock::now() - begin;
  CKPT_ASSIGN(const Judgement judgement, judge(layers, flags.request));
  const uint32_t shown = judgement.worst_layer;
  // The plan is printed even if the picture cannot be written.
  Status drawn;
  if (!flags.svg.empty()) {
    const std::string title = fmt::format("{}, layer {}: max/mean {:.3f}", flags.policy, shown,
                                          judgement.layers[shown].max_over_mean);
    drawn = report::write_file(flags.svg,
                               placement_svg(layers[shown], flags.request.loads[shown], title));
  }
  if (flags.json) {
    const ordered_json document = plan_json(flags, layers, judgement, planning.count());
    ckpt::base::write_stdout_exactly(ckpt::base::dump_json(document) + "\n");
    CKPT_TRY(drawn);
    return 0;
  }
  const PictureOptions picture{.columns = report::terminal_columns(STDOUT_FILENO),
                               .unicode = report::locale_is_utf8()};
  ckpt::base::print_stdout("{}: {} of {}, {}, planned in {:.1f} ms\n{}\n", flags.policy,
                           ckpt::base::counted(flags.request.ranks, "rank"),
                           ckpt::base::counted(flags.request.slots_per_rank, "slot"),
                           ckpt::base::counted(flags.request.experts(), "expert"), planning.count(),
                           judgement_text(judgement, flags.request));
  if (layers.size() > 1) ckpt::base::print_stdout("layer {}, the worst:\n", shown);
  ckpt::base::print_stdout("{}",
                           placement_picture(layers[shown], judgement.layers[shown], picture));
  CKPT_TRY(drawn);
  return 0;
}

void add_flags(CLI::App& command, PlanFlags& flags) {
  PlacementRequest& request = flags.request;
  command
      .add_option("--policy", flags.policy,
                  "Plan with static, eplb, flexmoe, lazarus, laer or frontier")
      ->capture_default_str();
  command.add_option("--ranks", request.ranks, "Place experts on N ranks")->required();
  command.add_option("--slots", request.slots_per_rank, "Give each rank N expert slots per layer")
      ->required();
  command
      .add_option("--min-replicas", request.replicas_min,
                  "Hold each expert in at least N failure domains")
      ->capture_default_str();
  command.add_option("--loads", flags.loads, "Plan one layer for these tokens per expert: L,L,...");
  command.add_option("--loads-file", flags.loads_file,
                     "Plan all layers of this CSV (iteration,layer,e0,e1,...; - is stdin)");
  command.add_option("--iteration", flags.iteration,
                     "Take this iteration of --loads-file (default: the last one)");
  command.add_option("--domains", flags.domains_file,
                     "Read from this CSV (rank,node) which ranks fail together");
  command.add_option(
      "--failures", request.failures,
      "Judge recovery from N failed ranks, or nodes with --domains (default: 1, 2 and 4)");
  command.add_option("--recovery", flags.recovery,
                     "FAILURES:PROBABILITY that frontier must reach (default: that of lazarus)");
  command.add_option("--nodes", request.nodes, "Divide the ranks into N nodes, with eplb and laer")
      ->capture_default_str();
  command
      .add_option("--expert-groups", request.expert_groups,
                  "Divide the experts into N groups, with hierarchical eplb")
      ->capture_default_str();
  command.add_option("--current", flags.current_file,
                     "Count the moves from this earlier plan, the JSON of `moetrain plan --json`");
  command.add_flag("--frontier", flags.frontier,
                   "List all choices between balance and recovery instead of one plan");
  command.add_option("--svg", flags.svg, "Write a picture of the worst layer here");
  command.add_flag("--json", flags.json, "Print one JSON document");
}

}  // namespace

void add_plan_command(CLI::App& app, ExitCode& exit_code) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* command =
      app.add_subcommand("plan", "Place replicas of experts, and show balance and recovery");
  add_flags(*command, *flags);
  command->footer(
      "Examples:\n"
      "  moetrain plan --ranks 4 --slots 2 --min-replicas 2 --loads 400,300,200,100\n"
      "  moetrain plan --ranks 16 --slots 6 --min-replicas 2 --loads-file routing.csv --frontier\n"
      "  zcat routing.csv.gz | moetrain plan --ranks 16 --slots 6 --loads-file - --json");
  command->callback([flags, &exit_code] { exit_code.value = exit_code_of(plan(*flags)); });
}

}  // namespace moetrain
