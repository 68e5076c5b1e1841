// moetrain simulate: the goodput of fault tolerance systems on a trace of failures; with --sharded,
// the step time of systems that shard experts.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>

#include "formats/base/console.h"
#include "formats/base/parse.h"
#include "trainer/cli/command.h"
#include "trainer/cli/simulate_sharded.h"
#include "trainer/report/report.h"
#include "trainer/simulate/model_file.h"
#include "trainer/simulate/render.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr size_t kTraceBytesMax = size_t{64} << 20;  // a million events
constexpr size_t kRoutingBytesMax = size_t{1} << 30;

struct SimulateFlags {
  std::string model_file;
  std::vector<std::string> settings;
  std::string trace_file;
  std::string mtbf, duration, repair;
  uint32_t nodes = 0, nodes_min = 0, nodes_max = 0;
  std::optional<uint64_t> seed;
  bool exponential = false;
  std::string routing_file;
  std::string policies = "all";
  bool best = false, sensitivity = false, json = false;
  std::string svg_file;
  bool sharded = false;
  std::string shape;
  std::optional<uint64_t> steps;
  std::optional<double> fit_skew;
  bool ablation = false;
};

Result<simulate::Micros> parse_micros(const std::string& flag, const std::string& text) {
  const Result<std::chrono::nanoseconds> parsed = ckpt::base::parse_duration(text);
  if (parsed.ok()) return std::chrono::duration_cast<std::chrono::microseconds>(*parsed).count();
  return make_error(parsed.error().code, "{}: {}", flag, parsed.error().message);
}

// Sets one parameter, "section.key=value", on top of the model file.
Status apply_setting(const std::string& setting, simulate::CostModel& model) {
  const size_t equals = std::min(setting.find('='), setting.size());
  const std::string name = setting.substr(0, equals);
  for (const simulate::Parameter& parameter : simulate::parameters()) {
    if (fmt::format("{}.{}", parameter.section, parameter.key) != name) continue;
    const char* begin = setting.data() + std::min(equals + 1, setting.size());
    const char* end = setting.data() + setting.size();
    const auto [stop, error] = std::from_chars(begin, end, model.*parameter.field);
    if (error == std::errc() && stop == end) return {};
    return make_error(ErrorCode::kInvalidArgument, "--set {}: must be {}=NUMBER", setting, name);
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "--set {}: no such parameter; they are named SECTION.KEY, as in the model file",
                    setting);
}

Result<simulate::CostModel> load_model(const SimulateFlags& flags) {
  CKPT_ASSIGN(simulate::CostModel model, simulate::read_model(flags.model_file));
  for (const std::string& setting : flags.settings) CKPT_TRY(apply_setting(setting, model));
  CKPT_TRY(simulate::validate(model));
  return model;
}

// The trace of --trace. It ends with its last event, or when --duration says.
Result<simulate::NodeTrace> recorded_trace(const SimulateFlags& flags) {
  if (!flags.mtbf.empty() || flags.nodes > 0 || !flags.repair.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--mtbf, --nodes and --repair make a trace: not with --trace");
  }
  CKPT_ASSIGN(const std::string text, simulate::read_text(flags.trace_file, kTraceBytesMax));
  CKPT_ASSIGN(simulate::NodeTrace trace, simulate::parse_trace(text, flags.trace_file));
  if (flags.nodes_max > 0) simulate::cap_nodes(trace, flags.nodes_max);
  if (!flags.duration.empty()) {
    CKPT_ASSIGN(const simulate::Micros end, parse_micros("--duration", flags.duration));
    CKPT_TRY(simulate::end_at(trace, end));
    return trace;
  }
  if (trace.end == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: everything happens at 0; set the length of the simulation by --duration",
                      flags.trace_file);
  }
  const auto last = std::ranges::count(trace.events, trace.end, &simulate::NodeEvent::at);
  ckpt::base::print_stderr(
      "moetrain: {} ends with its last {} at {} s, whose consequences are not simulated; "
      "--duration can extend the trace\n",
      flags.trace_file, last == 1 ? "event" : fmt::format("{} events", last),
      trace.end / simulate::kSecond);
  return trace;
}

Result<simulate::NodeTrace> load_trace(const SimulateFlags& flags) {
  if (!flags.trace_file.empty()) return recorded_trace(flags);
  if (flags.nodes_max > 0) {
    return make_error(ErrorCode::kInvalidArgument, "--nodes-max caps a recording: give --trace");
  }
  if (flags.mtbf.empty() || flags.nodes == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "give a trace: --trace CSV, or --nodes N --mtbf 5m");
  }
  simulate::SyntheticTrace options{.nodes = flags.nodes,
                                   .exponential = flags.exponential,
                                   .nodes_min = flags.nodes_min,
                                   .seed = flags.seed.value_or(1)};
  CKPT_ASSIGN(options.between_failures, parse_micros("--mtbf", flags.mtbf));
  CKPT_ASSIGN(options.duration,
              parse_micros("--duration", flags.duration.empty() ? "12h" : flags.duration));
  if (!flags.repair.empty()) {
    CKPT_ASSIGN(options.repair, parse_micros("--repair", flags.repair));
  }
  return simulate::make_trace(options);
}

std::string trace_name(const SimulateFlags& flags) {
  if (!flags.trace_file.empty()) return std::filesystem::path(flags.trace_file).filename();
  return fmt::format("a failure every {}{}", flags.mtbf, flags.exponential ? " on average" : "");
}

Result<simulate::LoadModel> load_loads(const SimulateFlags& flags,
                                       const simulate::CostModel& model) {
  if (flags.routing_file.empty()) return simulate::LoadModel::zipf(model);
  CKPT_ASSIGN(const std::string csv, simulate::read_text(flags.routing_file, kRoutingBytesMax));
  return simulate::LoadModel::from_trace(model, csv, flags.routing_file);
}

// The flags of one mode are refused in the other.
Status check_mode(const SimulateFlags& flags) {
  const bool of_traces = !flags.trace_file.empty() || !flags.mtbf.empty() || flags.nodes > 0 ||
                         flags.nodes_min > 0 || flags.nodes_max > 0 || flags.exponential ||
                         flags.seed || !flags.repair.empty() || !flags.duration.empty() ||
                         !flags.routing_file.empty() || flags.best || !flags.svg_file.empty();
  const bool of_steps = !flags.shape.empty() || flags.steps || flags.fit_skew || flags.ablation;
  if (flags.sharded && of_traces) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--sharded simulates a step without failures: flags of traces, --routing, "
                      "--best and --svg are not for it");
  }
  if (!flags.sharded && of_steps) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--shape, --steps, --fit-skew and --ablation need --sharded");
  }
  return {};
}

Result<int> sharded_command(const SimulateFlags& flags) {
  ShardedFlags sharded{.model_file = flags.model_file,
                       .settings = flags.settings,
                       .policies = flags.policies,
                       .fit_skew = flags.fit_skew,
                       .ablation = flags.ablation,
                       .sensitivity = flags.sensitivity,
                       .json = flags.json};
  if (!flags.shape.empty()) sharded.shape = flags.shape;
  if (flags.steps) sharded.steps = *flags.steps;
  return simulate_sharded(sharded);
}

Result<int> simulate_command(const SimulateFlags& flags) {
  CKPT_TRY(check_mode(flags));
  if (flags.sharded) return sharded_command(flags);
  CKPT_ASSIGN(const std::vector<const simulate::System*> systems,
              simulate::parse_systems(flags.policies));
  CKPT_ASSIGN(const simulate::CostModel model, load_model(flags));
  CKPT_ASSIGN(const simulate::NodeTrace trace, load_trace(flags));
  CKPT_ASSIGN(const simulate::LoadModel load, load_loads(flags, model));
  simulate::Planner planner(model, load);
  const simulate::Scenario scenario{model, trace, load, planner};
  CKPT_ASSIGN(const std::vector<simulate::PolicyResult> results,
              simulate::compare(scenario, systems, flags.best));
  std::vector<simulate::Varied> varied;
  if (flags.sensitivity) {
    const bool terminal = ::isatty(STDERR_FILENO) == 1;
    const auto progressed = [&](size_t done, size_t of) {
      if (!terminal) return;
      ckpt::base::write_stderr_exactly(fmt::format("\rmoetrain: {} of {} variations", done, of));
      if (done + 1 == of) ckpt::base::write_stderr_exactly("\r\033[K");
    };
    CKPT_ASSIGN(varied, simulate::sensitivity(scenario, systems, progressed));
  }
  const simulate::Comparison comparison{.model = std::filesystem::path(flags.model_file).stem(),
                                        .trace = trace_name(flags),
                                        .nodes = trace,
                                        .results = results,
                                        .with_best = flags.best,
                                        .varied = varied};
  if (flags.json) {
    ckpt::base::write_stdout_exactly(simulate::comparison_json(comparison) + "\n");
  } else {
    ckpt::base::print_stdout("{}", simulate::comparison_text(comparison));
  }
  if (!flags.svg_file.empty()) {
    CKPT_TRY(report::write_file(flags.svg_file, simulate::comparison_svg(comparison, {})));
  }
  return 0;
}

void add_flags(CLI::App& command, SimulateFlags& flags) {
  command
      .add_option("--model", flags.model_file,
                  "Read the cost model from this TOML file (examples: trainer/simulate/models)")
      ->required();
  command.add_option("--set", flags.settings,
                     "SECTION.KEY=NUMBER: replace this parameter of the model file");
  command.add_option("--trace", flags.trace_file,
                     "Replay this trace (lines milliseconds,add|remove,node)");
  command.add_option("--nodes-max", flags.nodes_max,
                     "With --trace: use at most N nodes at a time; the others are spares");
  command.add_option("--mtbf", flags.mtbf, "Without --trace: let a node fail every TIME");
  command.add_option("--nodes", flags.nodes, "Without --trace: begin with N nodes");
  command
      .add_option("--nodes-min", flags.nodes_min,
                  "Without --trace: stop failures when N nodes are left")
      ->capture_default_str();
  command.add_option("--repair", flags.repair,
                     "Without --trace: bring a lost node back after TIME (default: never)");
  command.add_option("--duration", flags.duration,
                     "End the trace at TIME (default: at its last event; 12h without --trace)");
  command.add_flag("--exponential", flags.exponential,
                   "Without --trace: fail at random times with this mean, not regularly");
  command.add_option("--seed", flags.seed, "Without --trace: seed of the random times (default 1)");
  command.add_option(
      "--routing", flags.routing_file,
      "Read tokens per expert from this CSV (iteration,layer,e0,...; default: [load] of the "
      "model file)");
  command
      .add_option("--policies", flags.policies,
                  "Simulate ds, ds-ft, gemini, moc, lazarus, ours (comma-separated), or all; with "
                  "--sharded: laer, flexmoe, eplb, fsdp-ep, megatron, or all")
      ->capture_default_str();
  command.add_flag("--best", flags.best,
                   "Also simulate each policy but ours at its best checkpoint interval");
  command.add_flag("--sensitivity", flags.sensitivity,
                   "Also simulate with every parameter at 0.5 and 1.5 times its value");
  command.add_option("--svg", flags.svg_file, "Write a picture of goodput over time to this file");
  command.add_flag("--json", flags.json, "Print one JSON document");
  command.add_flag("--sharded", flags.sharded,
                   "Compare the step time of systems that shard experts (--model: see "
                   "trainer/simulate/models/sharded)");
  command.add_option("--shape", flags.shape,
                     "With --sharded: simulate [shape.NAME] of the model file (default: all)");
  command.add_option("--steps", flags.steps, "With --sharded: simulate N steps (default 10)");
  command.add_flag("--ablation", flags.ablation,
                   "With --sharded: also simulate laer without each of its ingredients");
  command.add_option("--fit-skew", flags.fit_skew,
                     "With --sharded: print the zipf at which the busiest rank of fsdp-ep computes "
                     "RATIO times the mean tokens");
}

}  // namespace

void add_simulate_command(CLI::App& app, ExitCode& exit_code) {
  auto flags = std::make_shared<SimulateFlags>();
  CLI::App* command = app.add_subcommand(
      "simulate",
      "Compare the goodput of fault tolerance systems on a trace of failures, or (--sharded) the "
      "step time of systems that shard experts");
  add_flags(*command, *flags);
  command->footer(
      "Examples:\n"
      "  moetrain simulate --model gpt-l.toml --nodes 10 --nodes-min 5 --mtbf 5m --duration 30m\n"
      "  moetrain simulate --model gpt-l.toml --trace aws-p3.csv --best --svg goodput.svg --json\n"
      "  moetrain simulate --sharded --model laer-moe.toml --shape mixtral-8x7b-e16k4 --ablation");
  command->callback(
      [flags, &exit_code] { exit_code.value = exit_code_of(simulate_command(*flags)); });
}

}  // namespace moetrain
