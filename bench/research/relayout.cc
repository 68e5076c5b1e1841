#include "bench/research/relayout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "bench/common/report.h"
#include "bench/research/plan_times.h"
#include "bench/research/routing_trace.h"
#include "bench/research/step_balance.h"
#include "trainer/placement/laer.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;
using moetrain::LaerScheme;
using moetrain::LayerLoads;
using moetrain::NodeGroups;
using moetrain::PolicyName;
using nlohmann::json;

namespace {

constexpr double kBusiestMax = 1.15;  // tokens of the busiest rank, over the mean
constexpr uint32_t kZipfLayers = 6;
constexpr uint64_t kZipfSteps = 110;  // the first 10 are not counted
constexpr int kTimeRepeats = 5;
constexpr uint32_t kTimedExperts = 32;
constexpr uint32_t kTimedLayers = 24;
constexpr uint32_t kRanksOfNode = 8;

struct RelayoutArm {
  const char* name;
  PolicyName policy;
  LaerScheme scheme = LaerScheme::kLite;
  bool bounded = false;
};
constexpr RelayoutArm kRelayoutArms[] = {
    {"static", PolicyName::kStatic},
    {"eplb", PolicyName::kEplb},
    {"laer, published", PolicyName::kLaer, LaerScheme::kPublished},
    {"laer", PolicyName::kLaer, LaerScheme::kLite, true},
    {"frontier", PolicyName::kFrontier}};

struct RelayoutShape {
  uint32_t experts = 0;  // unused for a trace, which has its own
  uint32_t ranks, nodes, slots;
  uint32_t top_k = 1;
  uint64_t tokens_per_rank = 4'096;
  uint64_t steps_per_sample = 20;
  bool bounded = false;  // `laer` must come within kBusiestMax
};
constexpr double kZipfExponent = 1.2;
constexpr RelayoutShape kZipfShapes[] = {
    {.experts = 16, .ranks = 4, .nodes = 1, .slots = 8, .bounded = true},
    {.experts = 16, .ranks = 4, .nodes = 1, .slots = 8, .top_k = 2, .bounded = true},
    {.experts = 16, .ranks = 4, .nodes = 1, .slots = 8, .tokens_per_rank = 512, .bounded = true},
    {.experts = 16, .ranks = 4, .nodes = 2, .slots = 8, .bounded = true},
    {.experts = 16, .ranks = 4, .nodes = 1, .slots = 6},
    {.experts = 16, .ranks = 4, .nodes = 1, .slots = 5},
    {.experts = 16, .ranks = 4, .nodes = 1, .slots = 4},
    {.experts = 16, .ranks = 4, .nodes = 1, .slots = 4, .top_k = 2},
    {.experts = 32, .ranks = 8, .nodes = 1, .slots = 8},
    {.experts = 32, .ranks = 8, .nodes = 2, .slots = 8},
    {.experts = 32, .ranks = 8, .nodes = 1, .slots = 4},
    {.experts = 8, .ranks = 32, .nodes = 4, .slots = 2, .top_k = 2},
    {.experts = 16, .ranks = 32, .nodes = 4, .slots = 4, .top_k = 4}};
// A sample every 20 steps is how the trace was taken; every 4 makes it drift five times as fast.
constexpr RelayoutShape kTraceShapes[] = {
    {.ranks = 8, .nodes = 1, .slots = 8, .bounded = true},
    {.ranks = 8, .nodes = 2, .slots = 8, .bounded = true},
    {.ranks = 8, .nodes = 1, .slots = 8, .tokens_per_rank = 512, .bounded = true},
    {.ranks = 8, .nodes = 1, .slots = 8, .steps_per_sample = 4, .bounded = true},
    {.ranks = 8, .nodes = 2, .slots = 8, .steps_per_sample = 4, .bounded = true},
    {.ranks = 8, .nodes = 1, .slots = 6},
    {.ranks = 8, .nodes = 1, .slots = 5},
    {.ranks = 8, .nodes = 1, .slots = 4},
    {.ranks = 16, .nodes = 2, .slots = 6},
    {.ranks = 16, .nodes = 2, .slots = 4}};

std::vector<uint32_t> nodes_of_ranks(const RelayoutShape& shape) {
  std::vector<uint32_t> node_of_rank;
  node_of_rank.reserve(shape.ranks);
  for (uint32_t rank = 0; rank < shape.ranks; ++rank) {
    node_of_rank.push_back(rank / (shape.ranks / shape.nodes));
  }
  return node_of_rank;
}

Result<json> balance_row(const std::string& loads, const std::vector<LayerLoads>& samples,
                         const RelayoutShape& shape, const RelayoutArm& arm) {
  const auto experts = static_cast<uint32_t>(samples[0][0].size());
  CKPT_ASSIGN(const StepBalance balance,
              step_balance(samples, {.plan = {.policy = arm.policy,
                                              .layers = static_cast<uint32_t>(samples[0].size()),
                                              .experts = experts,
                                              .ranks = shape.ranks,
                                              .slots_per_rank = shape.slots,
                                              .node_of_rank = nodes_of_ranks(shape),
                                              .laer_scheme = arm.scheme},
                                     .tokens_per_rank = shape.tokens_per_rank,
                                     .top_k = shape.top_k,
                                     .steps_per_sample = shape.steps_per_sample}));
  json row = {{"loads", loads},
              {"experts", experts},
              {"ranks", shape.ranks},
              {"nodes", shape.nodes},
              {"slots_per_rank", shape.slots},
              {"top_k", shape.top_k},
              {"tokens_per_rank", shape.tokens_per_rank},
              {"steps_per_sample", shape.steps_per_sample},
              {"layers", samples[0].size()},
              {"steps", balance.steps},
              {"policy", arm.name},
              {"max_over_mean", balance.max_over_mean},
              {"max_over_mean_p99", balance.max_over_mean_p99},
              {"between_nodes", balance.between_nodes},
              {"restored", balance.restored}};
  if (shape.bounded && arm.bounded) {
    row["bound"] = kBusiestMax;
    row["verdict"] = balance.max_over_mean <= kBusiestMax ? "pass" : "fail";
  }
  return row;
}

// `frontier` plans a hundred times as long as the others: not on traces, which have many steps.
Status add_balance_rows(const RelayoutOptions& options, const std::string& loads,
                        const std::vector<LayerLoads>& samples, const RelayoutShape& shape,
                        json& rows) {
  for (const RelayoutArm& arm : kRelayoutArms) {
    if (options.bounded_only && !(shape.bounded && arm.bounded)) continue;
    if (arm.policy == PolicyName::kFrontier && samples.size() > 1) continue;
    CKPT_ASSIGN(json row, balance_row(loads, samples, shape, arm));
    say(fmt::format("{}, {} ranks of {} slots in {} nodes, {}: {:.3f}", loads, shape.ranks,
                    shape.slots, shape.nodes, arm.name, row["max_over_mean"].get<double>()));
    rows.push_back(std::move(row));
  }
  return {};
}

Result<std::vector<LayerLoads>> trace_loads(const RelayoutOptions& options) {
  CKPT_ASSIGN(const RoutingTrace trace, read_routing_trace(options.loads_file));
  std::vector<LayerLoads> samples;
  samples.reserve(trace.samples.size());
  for (const std::vector<int64_t>& sample : trace.samples) {
    LayerLoads& loads = samples.emplace_back();
    for (uint32_t layer = 0; layer < trace.grid.layers; layer += options.layers_every) {
      const auto begin = sample.begin() + static_cast<ptrdiff_t>(trace.grid.at(layer, 0));
      loads.emplace_back(begin, begin + trace.grid.experts);
      if (!moetrain::has_no_load(loads.back())) continue;
      return make_error(ErrorCode::kInvalidArgument, "{}: layer {} of sample {} has no tokens",
                        options.loads_file, layer, samples.size() - 1);
    }
  }
  return samples;
}

// LAER-MoE's planning times for 32 experts and 1 to 16 slots, second-hand: from a summary of the
// paper, which does not say whether they are for one layer or for all.
struct PublishedTimes {
  double least_ms = 0;
  double most_ms = 0;
};
PublishedTimes published_times(uint32_t ranks) {
  return ranks == 64 ? PublishedTimes{0.5, 1.7} : PublishedTimes{100, 282};
}

json time_row(uint32_t ranks, uint32_t slots, const RelayoutArm& arm) {
  const NodeGroups nodes = NodeGroups::even(ranks, ranks / kRanksOfNode);
  const LayerLoads loads = zipf_weights(kTimedLayers, kTimedExperts, kZipfExponent, 3);
  double quickest = HUGE_VAL;
  for (int repeat = 0; repeat < kTimeRepeats; ++repeat) {
    const double begin = thread_cpu_ms();
    moetrain::LaerPlanner planner(nodes, slots, kTimedExperts, arm.scheme);
    for (const std::vector<uint64_t>& of_layer : loads) planner.plan(of_layer);
    quickest = std::min(quickest, thread_cpu_ms() - begin);
  }
  const PublishedTimes published = published_times(ranks);
  return {{"ranks", ranks},
          {"nodes", ranks / kRanksOfNode},
          {"experts", kTimedExperts},
          {"slots_per_rank", slots},
          {"layers", kTimedLayers},
          {"policy", arm.name},
          {"cpu_ms_per_layer", quickest / kTimedLayers},
          {"cpu_ms", quickest},
          {"published_ms", {published.least_ms, published.most_ms}}};
}

json time_rows() {
  json rows = json::array();
  for (const uint32_t ranks : {64u, 1'024u}) {
    for (const uint32_t slots : {1u, 2u, 4u, 8u, 16u}) {
      for (const RelayoutArm& arm : kRelayoutArms) {
        if (arm.policy == PolicyName::kLaer) rows.push_back(time_row(ranks, slots, arm));
      }
    }
  }
  return rows;
}

}  // namespace

Result<json> bench_relayout(const RelayoutOptions& options) {
  if (options.layers_every == 0) {
    return make_error(ErrorCode::kInvalidArgument, "--layers-every 0: at least 1");
  }
  json rows = json::array();
  json document = {{"bench", "relayout"}, {"machine", machine(".")}};
  if (!options.loads_file.empty()) {
    CKPT_ASSIGN(const std::vector<LayerLoads> samples, trace_loads(options));
    for (const RelayoutShape& shape : kTraceShapes) {
      CKPT_TRY(add_balance_rows(options, "trace", samples, shape, rows));
    }
    document["trace"] = {{"file", std::filesystem::path(options.loads_file).filename().string()},
                         {"samples", samples.size()},
                         {"layers_every", options.layers_every}};
  }
  for (const RelayoutShape& shape : kZipfShapes) {
    const LayerLoads weights = zipf_weights(kZipfLayers, shape.experts, kZipfExponent, 7);
    RelayoutShape steady = shape;
    steady.steps_per_sample = kZipfSteps;
    CKPT_TRY(
        add_balance_rows(options, fmt::format("Zipf {}", kZipfExponent), {weights}, steady, rows));
  }
  document["rows"] = std::move(rows);
  if (options.times) document["planning"] = time_rows();
  return document;
}

std::string relayout_text(const json& document) {
  std::string text =
      "loads     experts  ranks  nodes  slots  top-k  tokens  hold  policy           max/mean    "
      "p99"
      "  between nodes  restored\n";
  for (const json& row : document["rows"]) {
    text += fmt::format(
        "{:8}  {:7}  {:5}  {:5}  {:5}  {:5}  {:6}  {:4}  {:15}  {:8.3f}  {:5.3f}  {:13.3f}  {:8.1f}"
        "  {}\n",
        row["loads"].get<std::string>(), row["experts"].get<uint32_t>(),
        row["ranks"].get<uint32_t>(), row["nodes"].get<uint32_t>(),
        row["slots_per_rank"].get<uint32_t>(), row["top_k"].get<uint32_t>(),
        row["tokens_per_rank"].get<uint64_t>(), row["steps_per_sample"].get<uint64_t>(),
        row["policy"].get<std::string>(), row["max_over_mean"].get<double>(),
        row["max_over_mean_p99"].get<double>(), row["between_nodes"].get<double>(),
        row["restored"].get<double>(), row.value("verdict", ""));
  }
  if (!document.contains("planning")) return text;
  text += "\nranks  nodes  slots  policy           ms of CPU a layer  for 24 layers  published\n";
  for (const json& row : document["planning"]) {
    text += fmt::format("{:5}  {:5}  {:5}  {:15}  {:17.3f}  {:13.2f}  {}-{}\n",
                        row["ranks"].get<uint32_t>(), row["nodes"].get<uint32_t>(),
                        row["slots_per_rank"].get<uint32_t>(), row["policy"].get<std::string>(),
                        row["cpu_ms_per_layer"].get<double>(), row["cpu_ms"].get<double>(),
                        row["published_ms"][0].get<double>(), row["published_ms"][1].get<double>());
  }
  return text;
}

}  // namespace bench
