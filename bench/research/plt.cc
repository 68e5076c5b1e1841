#include "bench/research/plt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "bench/research/plt_replay.h"
#include "bench/research/routing_trace.h"
#include "trainer/placement/recovery.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;
using moetrain::Selector;
using nlohmann::json;

namespace {

constexpr uint32_t kDeadMaxUsual = 4;

using ByteSelector = std::array<double, std::size(moetrain::kSelectors)>;

json to_json(const Replay& replay) {
  json failures = json::array();
  for (const FailureCases& failure : replay.failures) {
    failures.push_back({{"dead", failure.dead},
                        {"cases", failure.cases},
                        {"zero_loss_cases", failure.zero_loss_cases},
                        {"lost_tokens", failure.lost_tokens},
                        {"expected_plt", failure.expected_plt}});
  }
  return {{"failures", std::move(failures)},
          {"restart", {{"lost_tokens", replay.restart_lost_tokens}, {"plt", replay.restart_plt}}},
          {"gap_max", replay.gap_max}};
}

// Over all numbers of dead ranks, each as likely as another.
double expected_plt(const Replay& replay) {
  double sum = 0;
  for (const FailureCases& failure : replay.failures) sum += failure.expected_plt;
  return sum / static_cast<double>(replay.failures.size());
}

json ratios(const ByteSelector& plt) {
  const auto to = [&](Selector a, Selector b) {
    const double other = plt.at(static_cast<size_t>(b));
    return other > 0 ? json(plt.at(static_cast<size_t>(a)) / other) : json(nullptr);
  };
  return {{"sequential_to_load_aware", to(Selector::kSequential, Selector::kLoadAware)},
          {"risk_aware_to_load_aware", to(Selector::kRiskAware, Selector::kLoadAware)},
          {"risk_aware_to_sequential", to(Selector::kRiskAware, Selector::kSequential)}};
}

Status check(const PltOptions& options) {
  if (options.interval == 0 || options.replan == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--interval {} --replan {}: at least one sample each", options.interval,
                      options.replan);
  }
  if (options.ranks > moetrain::kExactRanksMax) {
    return make_error(ErrorCode::kInvalidArgument, "--ranks {}: at most {}, every set is counted",
                      options.ranks, moetrain::kExactRanksMax);
  }
  if (options.dead_max <= options.ranks) return {};
  return make_error(ErrorCode::kInvalidArgument, "--dead-max {}: 1 to the {} ranks",
                    options.dead_max, options.ranks);
}

}  // namespace

Result<json> bench_plt(const PltOptions& options) {
  CKPT_TRY(check(options));
  CKPT_ASSIGN(const RoutingTrace trace, read_routing_trace(options.trace));
  const moetrain::LazarusOptions lazarus{options.ranks, options.slots_per_rank,
                                         options.replicas_min};
  CKPT_ASSIGN(const TracePlacements placements, plan_placements(trace, lazarus, options.replan));
  json document = {{"bench", "plt"},
                   {"trace",
                    {{"samples", trace.samples.size()},
                     {"layers", trace.grid.layers},
                     {"experts", trace.grid.experts},
                     {"assignments", trace.assignments}}},
                   {"shape",
                    {{"interval", options.interval},
                     {"ranks", options.ranks},
                     {"slots_per_rank", options.slots_per_rank},
                     {"replicas_min", options.replicas_min},
                     {"replan", options.replan}}},
                   {"policies", json::array()},
                   {"ratios", json::array()}};
  const uint32_t dead_max =
      options.dead_max == 0 ? std::min(kDeadMaxUsual, options.ranks) : options.dead_max;
  ByteSelector total = {};
  for (const uint32_t k : options.ks.empty() ? std::vector<uint32_t>{1, 2, 4} : options.ks) {
    ByteSelector plt = {};
    for (const Selector selector : moetrain::kSelectors) {
      ReplayOptions how{.interval = options.interval, .dead_max = dead_max};
      how.selection = {selector, k, options.staleness_max};
      if (options.staleness_max == 0) {
        how.selection.staleness_max = moetrain::default_staleness_max(trace.grid.experts, k);
      }
      CKPT_TRY(check_selection(how.selection, trace.grid.experts));
      const Replay result = replay(trace, placements, how);
      if (result.overflowed) {
        return make_error(ErrorCode::kInvalidArgument,
                          "{}: the tokens lost in all cases together are more than 64 bits count;"
                          " take a larger --interval or a smaller --dead-max",
                          options.trace);
      }
      json policy = to_json(result);
      policy["k"] = k;
      policy["selector"] = selector_name(selector);
      policy["staleness_max"] = how.selection.staleness_max;
      const auto which = static_cast<size_t>(selector);
      policy["expected_plt"] = plt.at(which) = expected_plt(result);
      total.at(which) += plt.at(which);
      document["policies"].push_back(std::move(policy));
    }
    document["ratios"].push_back(ratios(plt));
    document["ratios"].back()["k"] = k;
  }
  document["ratios_all"] = ratios(total);
  if (options.placements) document["placements"] = placements.periods;
  return document;
}

std::string plt_text(const json& document) {
  const json& trace = document["trace"];
  const json& shape = document["shape"];
  std::string text = fmt::format(
      "{} samples of {} layers of {} experts; a snapshot every {}; {} ranks of {} slots, at least "
      "{} replicas\n"
      "  K  selector     expected PLT by dead ranks                 of a restart\n",
      trace["samples"].dump(), trace["layers"].dump(), trace["experts"].dump(),
      shape["interval"].dump(), shape["ranks"].dump(), shape["slots_per_rank"].dump(),
      shape["replicas_min"].dump());
  for (const json& policy : document["policies"]) {
    text += fmt::format("{:3}  {:11}", policy["k"].get<uint32_t>(),
                        policy["selector"].get<std::string>());
    for (const json& failure : policy["failures"]) {
      text += fmt::format("  {:7.4f} %", 100 * failure["expected_plt"].get<double>());
    }
    text += fmt::format("  {:8.3f} %\n", 100 * policy["restart"]["plt"].get<double>());
  }
  for (const auto& [name, ratio] : document["ratios_all"].items()) {
    text += fmt::format("{}: {}\n", name, ratio.dump());
  }
  return text;
}

}  // namespace bench
