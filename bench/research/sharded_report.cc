#include "bench/research/sharded_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bench/common/paired.h"

namespace bench {

using nlohmann::json;

namespace {

// A baseline passes if a step of the reference takes no longer.
constexpr double kBaselineRatio = 1.0;

// Rounds with the same popular experts lie side by side: neighbours are compared with each other.
std::vector<size_t> rounds_by_order(const std::vector<ShardedRun>& runs) {
  std::vector<size_t> rounds(runs.size());
  std::iota(rounds.begin(), rounds.end(), size_t{0});
  std::ranges::stable_sort(rounds, {}, [&](size_t round) { return runs[round].order; });
  return rounds;
}

std::vector<double> step_seconds_of(const ShardedArmRuns& arm, const std::vector<size_t>& rounds) {
  std::vector<double> seconds;
  seconds.reserve(rounds.size());
  for (const size_t round : rounds) seconds.push_back(arm.runs[round].figures.step_seconds);
  return seconds;
}

template <typename Value>
double mean_of(const ShardedArmRuns& arm, Value value) {
  double sum = 0;
  for (const ShardedRun& run : arm.runs) sum += static_cast<double>(value(run));
  return sum / static_cast<double>(arm.runs.size());
}

template <typename Value>
uint64_t most_of(const ShardedArmRuns& arm, Value value) {
  uint64_t most = 0;
  for (const ShardedRun& run : arm.runs) most = std::max<uint64_t>(most, value(run));
  return most;
}

// Distinct experts that a rank restores for a layer, on average: every step restores each of them
// twice, 4 bytes for each element that others own.
double experts_restored(const ShardedWorkloadRuns& workload, double restore_bytes) {
  const auto elements = static_cast<double>(workload.expert_elements);
  const double of_others = elements - elements / workload.ranks;
  return restore_bytes / (2.0 * 4.0 * of_others * workload.layers * workload.ranks);
}

json exchange_json(const ShardedWorkloadRuns& workload, const ShardedArmRuns& arm) {
  const auto mean = [&](auto moetrain::report::ExpertExchange::*field) {
    return mean_of(arm, [&](const ShardedRun& run) { return run.figures.exchange.*field; });
  };
  using Exchange = moetrain::report::ExpertExchange;
  const double restore_bytes = mean(&Exchange::restore_bytes);
  json exchange = {{"token_bytes", mean(&Exchange::token_bytes)},
                   {"restore_bytes", restore_bytes},
                   {"reshard_bytes", mean(&Exchange::reshard_bytes)},
                   {"exposed_ms", mean(&Exchange::exposed_ms)},
                   {"hidden_ms", mean(&Exchange::hidden_ms)},
                   {"plan_waits", mean(&Exchange::plan_waits)},
                   {"plan_wait_ms", mean(&Exchange::plan_wait_ms)}};
  if (arm.arm.sharded) {
    exchange["experts_restored"] = experts_restored(workload, restore_bytes);
  }
  return exchange;
}

json memory_json(const ShardedArmRuns& arm) {
  json memory = {
      {"expert_bytes",
       most_of(arm, [](const ShardedRun& run) { return run.figures.exchange.memory_bytes; })},
      {"resident_bytes_peak",
       most_of(arm, [](const ShardedRun& run) { return run.resident_bytes_peak; })}};
  if (arm.arm.sharded) {
    memory["expert_bytes_bound"] =
        most_of(arm, [](const ShardedRun& run) { return run.figures.exchange.memory_bound; });
  }
  return memory;
}

// Figures of the schedule, which are the same in every run of an arm.
json schedule_json(const ScheduleFigures& schedule) {
  const auto lead_json = [&](const ExchangeLead& lead) {
    const double steps = std::max<double>(1, static_cast<double>(schedule.steps));
    return json{{"per_rank_and_step", static_cast<double>(lead.exchanges) / steps},
                {"layers_ahead", lead.layers}};
  };
  return {{"restores", lead_json(schedule.restores)}, {"reshards", lead_json(schedule.reshards)}};
}

const char* role_name(ArmRole role) {
  switch (role) {
    case ArmRole::kReference:
      return "reference";
    case ArmRole::kBaseline:
      return "baseline";
    case ArmRole::kAblation:
      return "ablation";
  }
  return "";
}

// Adds the arm's step time as a multiple of the reference's.
void add_ratio(const ShardedArm& arm, const Paired& paired, json& row) {
  row["ratio_to_laer"] = paired.ratio;
  row["ratio_interval"] = {paired.ratio_interval.low, paired.ratio_interval.high};
  row["laer_self_interval"] = {paired.self_interval.low, paired.self_interval.high};
  row["verdict"] = arm.role == ArmRole::kBaseline ? verdict(paired, kBaselineRatio) : "measured";
}

// No placement, schedule or store of experts changes a bit.
bool same_bits(const ShardedArmRuns& reference, const ShardedArmRuns& of) {
  return std::ranges::equal(reference.runs, of.runs, {}, &ShardedRun::loss_bits,
                            &ShardedRun::loss_bits);
}

json arm_row_json(const ShardedWorkloadRuns& workload, const ShardedArmRuns& of,
                  const std::vector<size_t>& rounds) {
  const ShardedArmRuns& reference = workload.arms.front();
  const std::vector<double> seconds = step_seconds_of(of, rounds);
  const Interval interval = median_interval(seconds);
  json row = {{"loads", workload.loads},
              {"ranks", workload.ranks},
              {"experts", workload.experts},
              {"arm", of.arm.name},
              {"what", of.arm.description},
              {"role", role_name(of.arm.role)},
              {"step_seconds", median(seconds)},
              {"step_interval", {interval.low, interval.high}},
              {"max_over_mean",
               mean_of(of, [](const ShardedRun& run) { return run.figures.max_over_mean; })},
              {"busiest_tokens",
               mean_of(of, [](const ShardedRun& run) { return run.figures.busiest_tokens; })},
              {"exchange", exchange_json(workload, of)},
              {"memory", memory_json(of)},
              {"same_bits", same_bits(reference, of)},
              {"runs", seconds}};
  const bool is_static = std::string_view(of.arm.policy) == "static";
  row["slots"] =
      is_static ? (workload.experts + workload.ranks - 1) / workload.ranks : workload.slots;
  if (of.arm.sharded) row["schedule"] = schedule_json(of.runs.front().schedule);
  if (of.arm.role == ArmRole::kReference) {
    row["verdict"] = "reference";
  } else {
    add_ratio(of.arm, compared(step_seconds_of(reference, rounds), seconds), row);
  }
  if (!row["same_bits"].get<bool>()) row["verdict"] = "fail";
  return row;
}

}  // namespace

json sharded_rows(const ShardedWorkloadRuns& workload) {
  const std::vector<size_t> rounds = rounds_by_order(workload.arms.front().runs);
  CKPT_ASSERT(rounds.size() >= 2);
  json rows = json::array();
  for (const ShardedArmRuns& arm : workload.arms) {
    CKPT_ASSERT(arm.runs.size() == rounds.size());
    rows.push_back(arm_row_json(workload, arm, rounds));
  }
  return rows;
}

std::string note_on_cores(long cores, uint32_t ranks) {
  // Each rank computes on one thread and communicates on another.
  if (cores >= 2 * static_cast<long>(ranks)) {
    return fmt::format(
        "{} cores for {} ranks: each rank has a core to compute and a core to communicate", cores,
        ranks);
  }
  return fmt::format(
      "{} cores for {} ranks that each compute on one thread and communicate on another: step "
      "times cannot show overlap here. Counted bytes and the schedule trace (layers ahead) are the "
      "same on any machine. {}",
      cores, ranks,
      cores < static_cast<long>(ranks)
          ? "With fewer cores than ranks, time also hides imbalance: an early rank leaves its core "
            "to a late one"
          : "With a core for each rank, time shows imbalance");
}

std::string sharded_row_text(const json& row) {
  const json& exchange = row["exchange"];
  const auto mb = [](const json& bytes) { return bytes.get<double>() / 1e6; };
  std::string text =
      fmt::format("{:<8} {}x{:<2} {:<16} {:7.1f} ms", row["loads"].get<std::string>(),
                  row["ranks"].get<uint32_t>(), row["slots"].get<uint32_t>(),
                  row["arm"].get<std::string>(), row["step_seconds"].get<double>() * 1e3);
  text += row.contains("ratio_to_laer")
              ? fmt::format("  {:.3f} of laer [{:.3f}, {:.3f}]", row["ratio_to_laer"].get<double>(),
                            row["ratio_interval"][0].get<double>(),
                            row["ratio_interval"][1].get<double>())
              : std::string(30, ' ');
  text += fmt::format(
      "  max/mean {:.3f}  tokens {:.1f} MB  restore {:.1f} MB  re-shard {:.1f} MB  exposed {:.1f} "
      "ms  hidden {:.1f} ms  expert tensors {:.1f} MB  rank {:.0f} MB  {}  {}\n",
      row["max_over_mean"].get<double>(), mb(exchange["token_bytes"]),
      mb(exchange["restore_bytes"]), mb(exchange["reshard_bytes"]),
      exchange["exposed_ms"].get<double>(), exchange["hidden_ms"].get<double>(),
      mb(row["memory"]["expert_bytes"]), mb(row["memory"]["resident_bytes_peak"]),
      row["same_bits"].get<bool>() ? "same bits" : "OTHER BITS", row["verdict"].get<std::string>());
  return text;
}

}  // namespace bench
