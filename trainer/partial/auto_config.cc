#include "trainer/partial/auto_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "formats/base/assert.h"
#include "formats/base/counted.h"
#include "formats/base/parse.h"

namespace moetrain {

namespace {

// The number of steps in `seconds`, rounded up.
uint64_t steps_of(double seconds, double step_s, uint64_t steps_max) {
  constexpr double kRounding = 1e-9;  // of the division, which is no reason for a step more
  const double steps = std::ceil(seconds / step_s - kRounding);
  if (!(steps < static_cast<double>(steps_max))) return steps_max;
  return std::max<uint64_t>(1, static_cast<uint64_t>(steps));
}

// "2.13 ms", "38.0 s".
std::string time_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} s", seconds);
}

std::string rate_text(double seconds_per_byte) {
  if (seconds_per_byte <= 0) return "unknown speed";
  return ckpt::base::format_size(static_cast<uint64_t>(1 / seconds_per_byte)) + "/s";
}

}  // namespace

double mean_time_between_failures_s(const FailureRecord& record) {
  return record.seconds / (static_cast<double>(record.failures) + 0.5);
}

double young_interval_s(double cost_s, double mtbf_s) { return std::sqrt(2 * cost_s * mtbf_s); }

double daly_interval_s(double cost_s, double mtbf_s) {
  if (cost_s >= 2 * mtbf_s) return mtbf_s;
  const double x = std::sqrt(cost_s / (2 * mtbf_s));
  return young_interval_s(cost_s, mtbf_s) * (1 + x / 3 + x * x / 9) - cost_s;
}

uint32_t largest_hidden_k(const MeasuredCosts& costs, const AutoLimits& limits) {
  const double allowed_s = limits.copy_part_max * costs.step_s;
  uint32_t k = costs.experts;
  while (k > 1 && costs.stall_s(k) > allowed_s) --k;
  return k;
}

uint64_t sustainable_steps(const MeasuredCosts& costs, uint32_t k, const AutoLimits& limits) {
  CKPT_ASSERT(costs.step_s > 0);
  return steps_of(costs.durable_s(k), costs.step_s, limits.steps_max);
}

uint64_t best_steps(const MeasuredCosts& costs, const SnapshotExperts& k,
                    const AutoLimits& limits) {
  const double mtbf_s = mean_time_between_failures_s(costs.failures);
  const double best_s =
      std::min(daly_interval_s(costs.stall_s(k.copied), mtbf_s), limits.interval_max_s);
  // Rounds to the nearest: the optimum is flat, and rounding up would never go below it.
  const double nearest = std::max(1.0, std::round(best_s / costs.step_s));
  const auto best = static_cast<uint64_t>(std::min(nearest, static_cast<double>(limits.steps_max)));
  return std::max(best, sustainable_steps(costs, k.written, limits));
}

double expected_lost_part(const MeasuredCosts& costs, const SnapshotExperts& k,
                          uint64_t every_steps) {
  const double interval_s = static_cast<double>(every_steps) * costs.step_s;
  const double mtbf_s = mean_time_between_failures_s(costs.failures);
  const double stall_s = costs.stall_s(k.copied);
  const double copies = stall_s / (interval_s + stall_s);
  if (mtbf_s <= 0) return copies;
  const double again_s = interval_s / 2 + costs.durable_s(k.written) + costs.restore_s;
  return std::min(1.0, copies + again_s / mtbf_s);
}

AutoChoice choose(const MeasuredCosts& costs, const AutoRequest& request,
                  const AutoLimits& limits) {
  CKPT_ASSERT(costs.step_s > 0 && costs.experts > 0);
  AutoChoice choice;
  choice.k_hidden = std::max(largest_hidden_k(costs, limits), request.k_min);
  choice.k_persist = request.k.value_or(choice.k_hidden);
  const auto copied = [&](uint32_t written) {
    return request.memory ? std::max(written, request.k_snapshot.value_or(choice.k_hidden))
                          : written;
  };
  if (!request.k) {
    // Storage time grows in proportion to the bytes, the best interval with their root: if storage
    // keeps up with some number of experts, it does with fewer.
    const auto keeps_up = [&](uint32_t k) {
      const double mtbf_s = mean_time_between_failures_s(costs.failures);
      const double wanted_s =
          request.every ? static_cast<double>(*request.every) * costs.step_s
                        : std::max(costs.step_s, daly_interval_s(costs.stall_s(copied(k)), mtbf_s));
      return static_cast<double>(sustainable_steps(costs, k, limits)) * costs.step_s <=
             wanted_s + costs.step_s / 2;
    };
    while (choice.k_persist > request.k_min && !keeps_up(choice.k_persist)) --choice.k_persist;
  }
  choice.k_snapshot = copied(choice.k_persist);
  const SnapshotExperts k{.written = choice.k_persist, .copied = choice.k_snapshot};
  choice.sustainable = sustainable_steps(costs, choice.k_persist, limits);
  choice.every = request.every.value_or(best_steps(costs, k, limits));
  choice.mtbf_s = mean_time_between_failures_s(costs.failures);
  choice.best_s = daly_interval_s(costs.stall_s(k.copied), choice.mtbf_s);
  choice.lost_part = expected_lost_part(costs, k, choice.every);
  return choice;
}

std::string explain(const MeasuredCosts& costs, const AutoChoice& choice) {
  const uint32_t k = choice.k_persist;
  const FailureRecord& seen = costs.failures;
  const std::string copied =
      choice.k_snapshot > k ? fmt::format(", {} are copied", choice.k_snapshot) : "";
  const std::string recovery = costs.restore_s > 0
                                   ? fmt::format("a recovery takes {}", time_text(costs.restore_s))
                                   : "no recovery was measured";
  return fmt::format(
      "a step takes {}; a checkpoint of {} blocks {} and is durable after {} ({}); {} in"
      " {} of training, one in {} expected; {}; the best interval is {}, storage sustains {}, {}"
      " of {} experts hide{}; {:.1f} % of the time is expected to be lost",
      time_text(costs.step_s), ckpt::base::format_size(static_cast<uint64_t>(costs.bytes(k))),
      time_text(costs.stall_s(choice.k_snapshot)), time_text(costs.durable_s(k)),
      rate_text(costs.durable_s_per_byte), ckpt::base::counted(seen.failures, "failure"),
      time_text(seen.seconds), time_text(choice.mtbf_s), recovery, time_text(choice.best_s),
      ckpt::base::counted(choice.sustainable, "step"), choice.k_hidden, costs.experts, copied,
      100 * choice.lost_part);
}

}  // namespace moetrain
