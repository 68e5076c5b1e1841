// moetrain plan: a placement for given loads, and what it is worth.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "formats/base/console.h"
#include "formats/base/counted.h"
#include "formats/base/json_dump.h"
#include "trainer/main.h"
#include "trainer/placement/frontier.h"
#include "trainer/placement/judge.h"
#include "trainer/placement/layer_slots.h"
#include "trainer/placement/picture.h"
#include "trainer/placement/plan_files.h"
#include "trainer/placement/policy.h"
#include "trainer/report/progress.h"
#include "trainer/report/report.h"
#include "trainer/report/text.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using nlohmann::ordered_json;

namespace {

struct PlanFlags {
  std::string policy = "frontier";
  PlacementRequest request;
  std::optional<std::string> loads;
  std::string loads_file;
  std::optional<uint64_t> iteration;
  std::string domains_file;
  std::string current_file;
  std::vector<std::string> recovery;
  std::string svg;
  bool frontier = false;
  bool json = false;
};

// "2:0.98": of two failures, 98 in 100 are to be survived.
Result<RecoveryWanted> parse_wanted(const std::string& text) {
  RecoveryWanted wanted;
  const char* end = text.data() + text.size();
  const auto failures = std::from_chars(text.data(), end, wanted.failures);
  if (failures.ec == std::errc() && failures.ptr != end && *failures.ptr == ':') {
    const auto probability = std::from_chars(failures.ptr + 1, end, wanted.probability);
    if (probability.ec == std::errc() && probability.ptr == end) return wanted;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "--recovery {}: must be FAILURES:PROBABILITY, like 2:0.98", text);
}

// What an earlier `moetrain plan --json` said.
Result<std::vector<LayerSlots>> read_current(const std::string& path) {
  CKPT_ASSIGN(const std::string text, read_text(path));
  const auto document = nlohmann::json::parse(text, nullptr, false);
  const auto refuse = [&] {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: is no plan of `moetrain plan --json`, with its `ranks`", path);
  };
  if (!document.is_object()) return refuse();
  nlohmann::json one = nlohmann::json::array({document});
  const auto layers = document.contains("layers") ? document["layers"] : one;
  if (!layers.is_array()) return refuse();
  std::vector<LayerSlots> current;
  for (const auto& layer : layers) {
    if (!layer.is_object() || !layer.contains("ranks") || !layer["ranks"].is_array()) {
      return refuse();
    }
    LayerSlots& slots = current.emplace_back();
    for (const auto& rank : layer["ranks"]) {
      if (!rank.is_array()) return refuse();
      std::vector<uint32_t>& experts = slots.emplace_back();
      for (const auto& expert : rank) {
        if (!expert.is_number_unsigned() || expert.get<uint64_t>() > UINT32_MAX) return refuse();
        experts.push_back(expert.get<uint32_t>());
      }
    }
  }
  return current;
}

// An earlier plan has a place for every expert; a file that has not is not what it says it is.
Status check_whole(const PlacementRequest& request, const std::string& path) {
  for (size_t layer = 0; layer < request.current.size(); ++layer) {
    const auto held = holders(request.current[layer], request.experts());
    const auto missing =
        std::find_if(held.begin(), held.end(), [](const auto& ranks) { return ranks.empty(); });
    if (missing == held.end()) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: layer {} misses expert {}, which no rank holds", path, layer,
                      missing - held.begin());
  }
  return {};
}

// To a request that is valid without it: what validate() refuses then is in the file.
Status add_current(PlacementRequest& request, const std::string& path) {
  if (path.empty()) return {};
  CKPT_ASSIGN(request.current, read_current(path));
  const Status fits = validate(request);
  if (!fits.ok()) return make_error(fits.error().code, "{}: {}", path, fits.error().message);
  return check_whole(request, path);
}

Status fill_request(PlanFlags& flags) {
  PlacementRequest& request = flags.request;
  if (flags.loads.has_value() == !flags.loads_file.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "one of --loads and --loads-file is needed");
  }
  if (flags.loads) {
    CKPT_ASSIGN(std::vector<uint64_t> loads, parse_loads(*flags.loads, "--loads"));
    request.loads.push_back(std::move(loads));
  } else {
    CKPT_ASSIGN(const std::string csv, read_text(flags.loads_file));
    CKPT_ASSIGN(request.loads, parse_loads_csv(csv, flags.loads_file, flags.iteration));
  }
  if (!flags.domains_file.empty()) {
    // The number of ranks bounds what is read: it must make sense before.
    if (request.ranks == 0 || request.ranks > kPlacementRanksMax) {
      return make_error(ErrorCode::kInvalidArgument, "--ranks {}: 1 to {}", request.ranks,
                        kPlacementRanksMax);
    }
    CKPT_ASSIGN(const std::string csv, read_text(flags.domains_file));
    CKPT_ASSIGN(request.domain_of_rank, parse_domains(csv, flags.domains_file, request.ranks));
  }
  for (const std::string& text : flags.recovery) {
    CKPT_ASSIGN(const RecoveryWanted wanted, parse_wanted(text));
    request.recovery_wanted.push_back(wanted);
  }
  CKPT_TRY(validate(request));
  return add_current(request, flags.current_file);
}

// Layers that no token was routed to: they are planned as if their experts had equal loads.
std::vector<size_t> layers_without_tokens(const PlacementRequest& request) {
  std::vector<size_t> layers;
  for (size_t layer = 0; layer < request.loads.size(); ++layer) {
    if (nobody_asked(request.loads[layer])) layers.push_back(layer);
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

// What would be without effect is a mistake.
Status check_flags(const PlanFlags& flags, PolicyName policy) {
  const bool ours = policy == PolicyName::kFrontier;
  const bool of_nodes = policy == PolicyName::kEplb || policy == PolicyName::kLaer;
  const char* wrong = flags.frontier && !ours                 ? "--frontier"
                      : !flags.recovery.empty() && !ours      ? "--recovery"
                      : flags.request.nodes != 1 && !of_nodes ? "--nodes"
                      : flags.request.expert_groups != 1 && policy != PolicyName::kEplb
                          ? "--expert-groups"
                          : nullptr;
  if (wrong != nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "{}: not with --policy {}", wrong, flags.policy);
  }
  if (!flags.frontier || flags.svg.empty()) return {};
  return make_error(ErrorCode::kInvalidArgument, "--svg draws one plan: not with --frontier");
}

Result<int> plan(PlanFlags& flags) {
  CKPT_ASSIGN(const PolicyName policy, parse_policy(flags.policy));
  CKPT_TRY(check_flags(flags, policy));
  CKPT_TRY(fill_request(flags));
  say_equal_loads(flags.request);
  if (flags.frontier) return show_frontier(flags);
  const auto begin = std::chrono::steady_clock::now();
  CKPT_ASSIGN(const std::vector<LayerSlots> layers, plan_placement(policy, flags.request));
  const std::chrono::duration<double, std::milli> planning =
      std::chrono::steady_clock::now() - begin;
  CKPT_ASSIGN(const Judgement judgement, judge(layers, flags.request));
  const uint32_t shown = judgement.worst_layer;
  // Whatever becomes of the picture, the plan is printed.
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
  command.add_option("--policy", flags.policy, "static, eplb, flexmoe, lazarus, laer, frontier")
      ->capture_default_str();
  command.add_option("--ranks", request.ranks, "Ranks")->required();
  command.add_option("--slots", request.slots_per_rank, "Expert slots of a rank")->required();
  command.add_option("--min-replicas", request.replicas_min, "In distinct domains, every expert")
      ->capture_default_str();
  command.add_option("--loads", flags.loads, "Tokens of each expert: L,L,...");
  command.add_option("--loads-file", flags.loads_file,
                     "CSV: iteration,layer,e0,e1,...; all layers are planned; - is stdin");
  command.add_option("--iteration", flags.iteration, "Of --loads-file; default: the last one");
  command.add_option("--domains", flags.domains_file,
                     "CSV: rank,node; ranks of a node die together");
  command.add_option("--failures", request.failures,
                     "For how many failed ranks (or nodes) recovery counts; default: 1, 2 and 4");
  command.add_option("--recovery", flags.recovery,
                     "FAILURES:PROBABILITY that frontier must reach; default: what lazarus does");
  command.add_option("--nodes", request.nodes, "Nodes, for eplb and laer")->capture_default_str();
  command.add_option("--expert-groups", request.expert_groups, "For hierarchical eplb")
      ->capture_default_str();
  command.add_option("--current", flags.current_file,
                     "JSON of an earlier plan: what ranks hold now");
  command.add_flag("--frontier", flags.frontier, "All choices between balance and recovery");
  command.add_option("--svg", flags.svg, "Write a picture of the worst layer here");
  command.add_flag("--json", flags.json, "One JSON document on stdout");
}

}  // namespace

void add_plan_command(CLI::App& app, ExitCode& exit_code) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* command = app.add_subcommand("plan", "Where replicas of experts go, and what survives");
  add_flags(*command, *flags);
  command->footer(
      "Examples:\n"
      "  moetrain plan --ranks 4 --slots 2 --min-replicas 2 --loads 400,300,200,100\n"
      "  moetrain plan --ranks 16 --slots 6 --min-replicas 2 --loads-file routing.csv --frontier\n"
      "  zcat routing.csv.gz | moetrain plan --ranks 16 --slots 6 --loads-file - --json");
  command->callback([flags, &exit_code] {
    const Result<int> result = plan(*flags);
    exit_code.value = result.ok() ? *result : fail(result.error());
  });
}

}  // namespace moetrain
