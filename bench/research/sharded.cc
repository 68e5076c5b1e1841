#include "bench/research/sharded.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>

#include "bench/common/kill_reference.h"
#include "bench/common/paired.h"
#include "bench/common/report.h"
#include "bench/common/scratch.h"
#include "bench/research/routing_trace.h"
#include "bench/research/sharded_report.h"
#include "bench/research/sharded_run.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;
using nlohmann::json;

namespace {

// Enough layers for a prefetch of two to reach its depth, and experts that are most of a step.
constexpr uint32_t kShardedLayers = 4;
constexpr uint32_t kShardedIntermediate = 256;

struct ShardedWorkload {
  StepWorkload steps;
  ShardedRouting routing;
  std::string domains_file;
  ShardedWorkloadRuns runs;
};

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (file.flush()) return {};
  return make_error(ErrorCode::kIo, "{}: cannot be written", path);
}

std::string text_to_learn() {
  std::string text;
  for (int i = 0; i < 30'000; ++i)
    text += fmt::format("line {} of text {}\n", i * i % 9973, i % 17);
  return text;
}

// The layers that the model has, from the middle of the trace on: there routing has settled.
std::string trace_csv(const RoutingTrace& trace, uint32_t layers) {
  std::string csv = "iteration,layer";
  for (uint32_t expert = 0; expert < trace.grid.experts; ++expert)
    csv += fmt::format(",e{}", expert);
  csv += "\n";
  for (size_t sample = trace.samples.size() / 2; sample < trace.samples.size(); ++sample) {
    for (uint32_t layer = 0; layer < layers; ++layer) {
      csv += fmt::format("{},{}", sample + 1, layer);
      for (uint32_t expert = 0; expert < trace.grid.experts; ++expert) {
        csv += fmt::format(",{}", trace.samples[sample][trace.grid.at(layer, expert)]);
      }
      csv += "\n";
    }
  }
  return csv;
}

class ShardedBench {
 public:
  explicit ShardedBench(const ShardedOptions& options)
      : options_(options), steps_(sharded_steps(options.steps)) {}

  Status prepare();
  Status measure();
  json document() const;

 private:
  Status add_workload(const ShardedShape& shape, uint32_t experts, const std::string& loads,
                      const ShardedRouting& routing);
  Status add_trace(const ShardedShape& shape);
  Status one_round(int round);
  Status one_run(ShardedWorkload& workload, size_t arm, int round);

  const ShardedOptions options_;
  const ShardedSteps steps_;
  std::optional<ScratchDirectory> scratch_;
  std::vector<ShardedWorkload> workloads_;
  json trace_;
};

Status ShardedBench::add_workload(const ShardedShape& shape, uint32_t experts,
                                  const std::string& loads, const ShardedRouting& routing) {
  ShardedWorkload workload;
  StepWorkload& steps = workload.steps;
  steps.directory = scratch_->path();
  steps.data = scratch_->path() + "/data";
  steps.engine = options_.engine;
  steps.ranks = shape.ranks;
  steps.layers = kShardedLayers;
  steps.experts = experts;
  steps.intermediate = kShardedIntermediate;
  steps.batch = options_.sequences;
  steps.window = {steps_.first, steps_.last};
  workload.routing = routing;
  workload.domains_file = fmt::format("{}/domains-{}.csv", scratch_->path(), shape.ranks);
  CKPT_TRY(write_text(workload.domains_file, two_nodes_csv(shape.ranks)));
  const auto hidden = static_cast<uint64_t>(train_config(steps).model.hidden);
  workload.runs = {.loads = loads,
                   .ranks = shape.ranks,
                   .slots = shape.slots * experts / kShapeExperts,
                   .layers = kShardedLayers,
                   .experts = experts,
                   .expert_elements = 3 * hidden * kShardedIntermediate,
                   .arms = {}};
  for (const ShardedArm& arm : kShardedArms) {
    const bool wanted = options_.arms.empty() || arm.role == ArmRole::kReference ||
                        std::ranges::find(options_.arms, arm.name) != options_.arms.end();
    if (wanted) workload.runs.arms.push_back({.arm = arm, .runs = {}});
  }
  workloads_.push_back(std::move(workload));
  return {};
}

Status ShardedBench::add_trace(const ShardedShape& shape) {
  CKPT_ASSIGN(const RoutingTrace trace, read_routing_trace(options_.trace));
  const moetrain::ExpertGrid& grid = trace.grid;
  if (grid.layers < kShardedLayers || grid.experts % kShapeExperts != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: has {} layers of {} experts; needs at least {} layers, and a multiple "
                      "of {} experts",
                      options_.trace, grid.layers, grid.experts, kShardedLayers, kShapeExperts);
  }
  const std::string file = scratch_->path() + "/trace.csv";
  CKPT_TRY(write_text(file, trace_csv(trace, kShardedLayers)));
  trace_ = {{"file", std::filesystem::path(options_.trace).filename().string()},
            {"samples", trace.samples.size()},
            {"first_sample", trace.samples.size() / 2},
            {"steps_per_sample", options_.trace_hold}};
  return add_workload(shape, grid.experts, "trace",
                      {.trace_file = file, .trace_hold = options_.trace_hold});
}

Status ShardedBench::prepare() {
  for (const std::string& name : options_.arms) {
    if (std::ranges::find(kShardedArms, name, &ShardedArm::name) != std::end(kShardedArms))
      continue;
    return make_error(ErrorCode::kInvalidArgument, "--arms {}: there is no such arm", name);
  }
  CKPT_ASSIGN(ScratchDirectory made, ScratchDirectory::make(options_.directory));
  scratch_.emplace(std::move(made));
  CKPT_TRY(write_text(scratch_->path() + "/data", text_to_learn()));
  for (const ShardedShape& shape : options_.shapes) {
    CKPT_TRY(add_workload(shape, kShapeExperts, fmt::format("Zipf {}", options_.skew),
                          {.skew = options_.skew}));
  }
  return options_.trace.empty() ? Status() : add_trace(options_.shapes.back());
}

Status ShardedBench::one_run(ShardedWorkload& workload, size_t arm, int round) {
  ShardedArmRuns& of = workload.runs.arms[arm];
  ShardedRouting routing = workload.routing;
  routing.order = round % options_.orders;
  const std::vector<std::string> flags =
      sharded_flags(of.arm, workload.runs.slots, steps_, routing, workload.domains_file);
  Result<ShardedRun> run = run_sharded(workload.steps, flags, of.arm.sharded);
  if (!run.ok()) {
    return make_error(run.error().code, "{}, {} ranks, arm {}: {}", workload.runs.loads,
                      workload.runs.ranks, of.arm.name, run.error().message);
  }
  run->order = routing.trace_file.empty() ? routing.order : 0;
  of.runs.push_back(*std::move(run));
  return {};
}

Status ShardedBench::one_round(int round) {
  for (ShardedWorkload& workload : workloads_) {
    const size_t arms = workload.runs.arms.size();
    std::string line =
        fmt::format("round {}, {}, {} ranks:", round + 1, workload.runs.loads, workload.runs.ranks);
    for (size_t i = 0; i < arms; ++i) {
      // A B C C B A: no arm is always first or last in a round.
      const size_t arm = round % 2 == 0 ? i : arms - 1 - i;
      CKPT_TRY(one_run(workload, arm, round));
      const ShardedArmRuns& of = workload.runs.arms[arm];
      line += fmt::format(" {} {:.1f} ms", of.arm.name, of.runs.back().figures.step_seconds * 1e3);
    }
    say(line);
  }
  return {};
}

Status ShardedBench::measure() {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const Clock::time_point start = Clock::now();
  double longest = 0;
  for (int round = 0; round < options_.rounds; ++round) {
    const double left = options_.budget_seconds - seconds_since(start);
    if (!begins_round(round, left, longest)) break;
    const Clock::time_point begin = Clock::now();
    CKPT_TRY(one_round(round));
    longest = std::max(longest, seconds_since(begin));
  }
  return {};
}

json ShardedBench::document() const {
  const StepWorkload& steps = workloads_.front().steps;
  json rows = json::array();
  uint32_t ranks = 0;
  for (const ShardedWorkload& workload : workloads_) {
    for (json& row : sharded_rows(workload.runs)) rows.push_back(std::move(row));
    ranks = std::max(ranks, workload.runs.ranks);
  }
  json document = {{"bench", "sharded"},
                   {"machine", machine(options_.directory)},
                   {"unit", "s"},
                   {"limit_name", "a step of laer in the run of the same round"},
                   {"shape",
                    {{"tokens_per_step", steps.tokens_per_step()},
                     {"layers", steps.layers},
                     {"intermediate", steps.intermediate},
                     {"top_k", train_config(steps).model.top_k},
                     {"orders", options_.orders},
                     {"steps_of_a_run", options_.steps},
                     {"steps_before", steps_.first},
                     {"nodes", 2},
                     {"io", options_.engine}}},
                   {"rounds", workloads_.front().runs.arms.front().runs.size()},
                   {"note", note_on_cores(::sysconf(_SC_NPROCESSORS_ONLN), ranks)},
                   {"rows", std::move(rows)}};
  if (!trace_.is_null()) document["trace"] = trace_;
  return document;
}

}  // namespace

Result<json> bench_sharded(const ShardedOptions& options) {
  ShardedBench bench(options);
  CKPT_TRY(bench.prepare());
  CKPT_TRY(bench.measure());
  return bench.document();
}

std::string sharded_text(const json& document) {
  const json& shape = document["shape"];
  std::string text =
      fmt::format("sharded: {} tokens, {} layers, {} rounds\n{}\n",
                  shape["tokens_per_step"].get<uint64_t>(), shape["layers"].get<int>(),
                  document["rounds"].get<uint64_t>(), document["note"].get<std::string>());
  for (const json& row : document["rows"]) text += sharded_row_text(row);
  return text;
}

}  // namespace bench
