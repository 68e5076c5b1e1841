#include "bench/research/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>

#include "bench/common/report.h"
#include "bench/research/plan_times.h"
#include "bench/research/routing_trace.h"
#include "trainer/placement/frontier.h"
#include "trainer/placement/judge.h"
#include "trainer/placement/recovery.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;
using moetrain::Judgement;
using moetrain::LayerSlots;
using moetrain::PlacementRequest;
using moetrain::PolicyName;
using nlohmann::json;

namespace {

constexpr uint32_t kFailures[] = {1, 2, 4};

using Loads = std::vector<std::vector<uint64_t>>;  // [layer][expert]

// Trace where none is given: 24 layers of 32 experts whose loads drift, a sample every 20
// iterations, as in the trace of bench/results/plan.md. It compares policies, not models.
std::vector<Loads> synthetic_trace() {
  constexpr uint32_t kSamples = 60;
  std::mt19937 random(7);
  std::vector<Loads> samples = {zipf_loads(24, 32, 100'000, 7)};
  while (samples.size() < kSamples) {
    Loads& next = samples.emplace_back(samples.back());
    for (auto& layer : next) {
      // Up to 5 % more or fewer.
      for (uint64_t& load : layer) load = 1 + load * (950 + random() % 101) / 1000;
    }
  }
  return samples;
}

Result<std::vector<Loads>> read_samples(const std::string& path) {
  if (path.empty()) return synthetic_trace();
  CKPT_ASSIGN(const RoutingTrace trace, read_routing_trace(path));
  std::vector<Loads> samples;
  samples.reserve(trace.samples.size());
  for (const std::vector<int64_t>& sample : trace.samples) {
    Loads& loads = samples.emplace_back();
    for (uint32_t layer = 0; layer < trace.grid.layers; ++layer) {
      const auto begin = sample.begin() + static_cast<ptrdiff_t>(trace.grid.at(layer, 0));
      loads.emplace_back(begin, begin + trace.grid.experts);
    }
  }
  return samples;
}

// Results of one policy's plans, judged some samples after the loads of the plan.
struct Row {
  uint32_t judged = 0;
  double balance = 0;  // sum over the judged plans
  double worst = 0;    // the most
  double recovery[std::size(kFailures)] = {};
  double recovery_least[std::size(kFailures)] = {1, 1, 1};

  void add(const Judgement& judgement) {
    ++judged;
    balance += judgement.max_over_mean;
    worst = std::max(worst, judgement.max_over_mean_worst);
    for (size_t i = 0; i < std::size(kFailures); ++i) {
      const double probability = judgement.recovery[kFailures[i] - 1].probability;
      recovery[i] += probability;
      recovery_least[i] = std::min(recovery_least[i], probability);
    }
  }
};

json to_json(PolicyName policy, uint32_t lag, const Row& row, std::vector<double> cpu_ms) {
  json recovery = json::array();
  for (size_t i = 0; i < std::size(kFailures); ++i) {
    recovery.push_back({{"failed", kFailures[i]},
                        {"probability", row.recovery[i] / row.judged},
                        {"least", row.recovery_least[i]}});
  }
  const double mean =
      std::reduce(cpu_ms.begin(), cpu_ms.end()) / static_cast<double>(cpu_ms.size());
  std::ranges::sort(cpu_ms);
  return {{"policy", moetrain::policy_name(policy)},
          {"lag_samples", lag},
          {"plans", row.judged},
          {"max_over_mean", row.balance / row.judged},
          {"max_over_mean_worst", row.worst},
          {"recovery", std::move(recovery)},
          {"planning_cpu_ms",
           {{"mean", mean}, {"p50", cpu_ms[cpu_ms.size() / 2]}, {"max", cpu_ms.back()}}}};
}

Result<json> rows_of(PolicyName policy, const std::vector<Loads>& samples,
                     const PlanOptions& options) {
  std::map<uint32_t, Row> by_lag;
  std::vector<double> cpu_ms;
  PlacementRequest request{.ranks = options.ranks,
                           .slots_per_rank = options.slots_per_rank,
                           .replicas_min = options.replicas_min};
  std::vector<LayerSlots> layers;
  for (size_t at = 0; at < samples.size(); at += options.every) {
    request.loads = samples[at];
    const double begin = thread_cpu_ms();
    // flexmoe starts from its previous plan; the other policies ignore that plan.
    CKPT_ASSIGN(layers, moetrain::plan_placement(policy, request));
    cpu_ms.push_back(thread_cpu_ms() - begin);
    for (const uint32_t lag : options.lags) {
      if (at + lag >= samples.size()) continue;
      request.loads = samples[at + lag];
      CKPT_ASSIGN(const Judgement judgement, moetrain::judge(layers, request));
      by_lag[lag].add(judgement);
    }
    request.current = layers;
  }
  json rows = json::array();
  for (const auto& [lag, row] : by_lag) rows.push_back(to_json(policy, lag, row, cpu_ms));
  return rows;
}

Result<json> frontier_rows(const Loads& loads, const PlanOptions& options) {
  const PlacementRequest request{.loads = loads,
                                 .ranks = options.ranks,
                                 .slots_per_rank = options.slots_per_rank,
                                 .replicas_min = options.replicas_min};
  CKPT_ASSIGN(const auto points, moetrain::frontier_points(request));
  json rows = json::array();
  for (const moetrain::FrontierPoint& point : points) {
    json recovery = json::array();
    for (const uint32_t failed : kFailures) {
      recovery.push_back({{"failed", failed}, {"probability", point.recovery[failed - 1]}});
    }
    rows.push_back({{"max_over_mean", point.max_over_mean},
                    {"max_over_mean_worst", point.max_over_mean_worst},
                    {"recovery", std::move(recovery)}});
  }
  return rows;
}

Status check(const PlanOptions& options) {
  if (options.every == 0) {
    return make_error(ErrorCode::kInvalidArgument, "--every 0: at least one sample");
  }
  if (options.ranks >= 5 && options.ranks <= moetrain::kExactRanksMax) return {};
  return make_error(ErrorCode::kInvalidArgument, "--ranks {}: 5 to {}, every failure is counted",
                    options.ranks, moetrain::kExactRanksMax);
}

std::string recovery_text(const json& recovery) {
  std::string text;
  for (const json& at : recovery) text += fmt::format("  {:.3f}", at["probability"].get<double>());
  return text;
}

// Without the folders that it lies in.
std::string trace_name(const PlanOptions& options) {
  if (options.loads_file.empty()) return "synthetic";
  return std::filesystem::path(options.loads_file).filename().string();
}

}  // namespace

Result<json> bench_plan(const PlanOptions& given) {
  CKPT_TRY(check(given));
  PlanOptions options = given;
  if (options.lags.empty()) options.lags = {0, 10, 18};
  CKPT_ASSIGN(const std::vector<Loads> samples, read_samples(options.loads_file));
  json rows = json::array();
  for (const PolicyName policy : moetrain::kPolicies) {
    CKPT_ASSIGN(const json of_policy, rows_of(policy, samples, options));
    for (const json& row : of_policy) rows.push_back(row);
  }
  CKPT_ASSIGN(json frontier, frontier_rows(samples[samples.size() / 2], options));
  json document = {{"bench", "plan"},
                   {"machine", machine(".")},
                   {"shape",
                    {{"trace", trace_name(options)},
                     {"samples", samples.size()},
                     {"layers", samples[0].size()},
                     {"experts", samples[0][0].size()},
                     {"ranks", options.ranks},
                     {"slots_per_rank", options.slots_per_rank},
                     {"replicas_min", options.replicas_min},
                     {"every", options.every}}},
                   {"rows", std::move(rows)},
                   {"frontier", std::move(frontier)}};
  if (options.times) {
    CKPT_ASSIGN(document["planning"], planning_times(options.slots_per_rank));
  }
  return document;
}

std::string plan_text(const json& document) {
  const json& shape = document["shape"];
  std::string text = fmt::format(
      "{}: {} samples of {} layers of {} experts; {} ranks of {} slots, at least {} replicas\n\n"
      "policy    lag  max/mean  worst   joint recovery 1, 2, 4   planning, ms of CPU: mean (most)"
      "\n",
      shape["trace"].get<std::string>(), shape["samples"].dump(), shape["layers"].dump(),
      shape["experts"].dump(), shape["ranks"].dump(), shape["slots_per_rank"].dump(),
      shape["replicas_min"].dump());
  for (const json& row : document["rows"]) {
    text += fmt::format(
        "{:8}  {:3}  {:8.3f}  {:5.3f} {}  {:10.2f} ({:.2f})\n", row["policy"].get<std::string>(),
        row["lag_samples"].get<uint32_t>(), row["max_over_mean"].get<double>(),
        row["max_over_mean_worst"].get<double>(), recovery_text(row["recovery"]),
        row["planning_cpu_ms"]["mean"].get<double>(), row["planning_cpu_ms"]["max"].get<double>());
  }
  text += "\nthe frontier in the middle of the trace\n";
  for (const json& point : document["frontier"]) {
    text +=
        fmt::format("{:20.3f}  {:5.3f} {}\n", point["max_over_mean"].get<double>(),
                    point["max_over_mean_worst"].get<double>(), recovery_text(point["recovery"]));
  }
  if (!document.contains("planning")) return text;
  text += "\nranks  nodes  slots  experts  layers  policy    ms of CPU  a layer  max/mean  limit\n";
  for (const json& entry : document["planning"]) {
    text += fmt::format("{:5}  {:5}  {:5}  {:7}  {:6}  {:8}  {:9.2f}  {:7.3f}  {:8.3f}",
                        entry["ranks"].get<uint32_t>(), entry["nodes"].get<uint32_t>(),
                        entry["slots_per_rank"].get<uint32_t>(), entry["experts"].get<uint32_t>(),
                        entry["layers"].get<uint32_t>(), entry["policy"].get<std::string>(),
                        entry["cpu_ms"].get<double>(), entry["cpu_ms_per_layer"].get<double>(),
                        entry["max_over_mean"].get<double>());
    if (entry.contains("limit_ms")) {
      text +=
          fmt::format("  {} ms ({}): {}", entry["limit_ms"].dump(),
                      entry["limit_name"].get<std::string>(), entry["verdict"].get<std::string>());
    }
    text += "\n";
  }
  return text;
}

}  // namespace bench
