#include "bench/research/kills_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "bench/common/paired.h"
#include "bench/research/kills.h"

namespace bench {

using nlohmann::json;

namespace {

constexpr double kBoundSeconds = 1.0;  // to the next completed step
constexpr double kLossBound = 1e-5;    // relative
constexpr double kStepBound = 0.2;     // seconds: longest step for which the bound is claimed
constexpr size_t kTrialsMin = 5;       // for a verdict of times
const char* const kParts[] = {"detect", "regroup", "plan", "migrate", "first_step"};

template <typename Value>
double median_of(const std::vector<KillTrial>& trials, Value value) {
  std::vector<double> values;
  values.reserve(trials.size());
  for (const KillTrial& trial : trials) values.push_back(value(trial));
  return median(values);
}

json split_json(const KillSplit& split) {
  return {{"detect", split.detect},
          {"regroup", split.regroup},
          {"plan", split.plan},
          {"migrate", split.migrate},
          {"first_step", split.first_step}};
}

// Infinite where the losses of different steps were to be compared: null in JSON.
json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json trial_json(const KillTrial& trial) {
  const KillFigures& figures = trial.figures;
  return {{"ranks", trial.ranks},
          {"seconds", figures.seconds},
          {"new_step_seconds", figures.new_step_seconds},
          {"split", split_json(figures.split)},
          {"step_seconds", figures.step_seconds},
          {"completed", figures.completed},
          {"resumed_at", figures.resumed_at},
          {"steps_redone", figures.redone()},
          {"group", figures.group},
          {"effective_replicas", figures.effective_replicas},
          {"experts_taken", trial.experts_taken},
          {"lost_tokens", figures.lost_tokens},
          {"rolled_back_exactly", trial.rolled_back_exactly},
          {"loss_difference", number(trial.loss_difference)},
          {"same_bits", trial.same_bits}};
}

// True if the trial's state after recovery is as expected, apart from times.
bool is_right(const KillArmTrials& of, const KillTrial& trial) {
  return trial.rolled_back_exactly && trial.figures.redone() <= of.redone_max &&
         trial.loss_difference <= kLossBound && (trial.same_bits || !of.same_bits);
}

// Verdict by the interval of the median. If steps are longer than kStepBound, the verdict can be
// "pass" but not "fail".
const char* time_verdict(const std::vector<double>& seconds, double step_seconds) {
  if (seconds.size() < kTrialsMin) return "inconclusive";
  const Interval interval = median_interval(seconds);
  if (interval.high <= kBoundSeconds) return "pass";
  return interval.low > kBoundSeconds && step_seconds <= kStepBound ? "fail" : "inconclusive";
}

json arm_json(const KillArmTrials& of) {
  const std::vector<KillTrial>& trials = of.trials;
  std::vector<double> seconds;
  seconds.reserve(trials.size());
  json runs = json::array();
  for (const KillTrial& trial : trials) {
    seconds.push_back(trial.figures.new_step_seconds);
    runs.push_back(trial_json(trial));
  }
  json split;
  for (const char* part : kParts) {
    split[part] = median_of(trials, [&](const KillTrial& trial) {
      return split_json(trial.figures.split)[part].template get<double>();
    });
  }
  const double step_seconds =
      median_of(trials, [](const KillTrial& trial) { return trial.figures.step_seconds; });
  const Interval interval = median_interval(seconds);
  const auto worst = std::ranges::max_element(trials, {}, &KillTrial::loss_difference);
  const bool right =
      std::ranges::all_of(trials, [&](const KillTrial& trial) { return is_right(of, trial); });
  const bool judged = of.arm.survivors_continue && !of.arm.hangs;
  json row = {{"arm", of.arm.name},
              {"what", of.arm.description},
              {"value", median(seconds)},
              {"interval", {interval.low, interval.high}},
              {"to_first_step",
               median_of(trials, [](const KillTrial& trial) { return trial.figures.seconds; })},
              {"split", split},
              {"step_seconds", step_seconds},
              {"steps_redone", median_of(trials,
                                         [](const KillTrial& trial) {
                                           return static_cast<double>(trial.figures.redone());
                                         })},
              {"loss_difference_max", number(worst->loss_difference)},
              {"same_bits", std::ranges::all_of(trials, &KillTrial::same_bits)},
              {"right", right},
              {"runs", runs}};
  if (judged) {
    row["limit"] = kBoundSeconds;
    row["verdict"] = right ? time_verdict(seconds, step_seconds) : "fail";
  } else {
    row["verdict"] = right ? "right" : "fail";
  }
  return row;
}

json ladder_json(const Ladder& ladder) {
  const LadderFigures& figures = ladder.figures;
  json epochs = json::array();
  for (const LadderEpoch& epoch : figures.epochs) {
    epochs.push_back({{"resumed_at", epoch.resumed_at},
                      {"ranks", epoch.group},
                      {"effective_replicas", epoch.effective_replicas},
                      {"replicas_expected", epoch.replicas_expected}});
  }
  return {{"epochs", epochs},
          {"steps", figures.steps},
          {"idle_steps", figures.idle_steps},
          {"lost_tokens", figures.lost_tokens},
          {"steps_redone", figures.redone},
          {"reached_one", figures.reached_one},
          {"back_to_all", figures.back_to_all},
          {"same_bits", ladder.same_bits},
          {"verdict", figures.good() && ladder.same_bits ? "pass" : "fail"}};
}

std::string row_text(const json& row) {
  const auto ms = [](const json& seconds) { return seconds.get<double>() * 1e3; };
  const json& split = row["split"];
  const json& difference = row["loss_difference_max"];
  return fmt::format(
      "{:<8} {:7.0f} ms [{:.0f}, {:.0f}]  detect {:5.0f}  regroup {:5.0f}  plan {:4.0f}  migrate "
      "{:4.0f}  first step {:5.0f}  step {:4.0f}  redone {:.0f}  losses {}  {}\n",
      row["arm"].get<std::string>(), ms(row["value"]), ms(row["interval"][0]),
      ms(row["interval"][1]), ms(split["detect"]), ms(split["regroup"]), ms(split["plan"]),
      ms(split["migrate"]), ms(split["first_step"]), ms(row["step_seconds"]),
      row["steps_redone"].get<double>(),
      row["same_bits"].get<bool>() ? "same bits"
      : difference.is_null()       ? "of other steps"
                                   : fmt::format("{:.1e}", difference.get<double>()),
      row["verdict"].get<std::string>());
}

std::string ladder_text(const json& ladder) {
  std::vector<std::string> groups;
  groups.reserve(ladder["epochs"].size());
  for (const json& epoch : ladder["epochs"]) {
    groups.push_back(
        fmt::format("{}(f={})", epoch["ranks"].get<int>(), epoch["effective_replicas"].get<int>()));
  }
  return fmt::format(
      "ladder   ranks {}: {} steps, {} with an idle rank, {} tokens lost, {} redone, {}  {}\n",
      fmt::join(groups, " "), ladder["steps"].get<uint64_t>(), ladder["idle_steps"].get<uint64_t>(),
      ladder["lost_tokens"].get<int64_t>(), ladder["steps_redone"].get<uint64_t>(),
      ladder["same_bits"].get<bool>() ? "same bits" : "OTHER BITS",
      ladder["verdict"].get<std::string>());
}

}  // namespace

json kills_json(const std::vector<KillArmTrials>& arms, const std::optional<Ladder>& ladder) {
  json document = {{"unit", "s"}, {"rows", json::array()}};
  const json* slowest = nullptr;
  for (const KillArmTrials& arm : arms) {
    if (!arm.trials.empty()) document["rows"].push_back(arm_json(arm));
  }
  for (const json& row : document["rows"]) {
    if (!row.contains("limit")) continue;
    if (slowest == nullptr || row["value"] > (*slowest)["value"]) slowest = &row;
  }
  if (slowest != nullptr) {
    document["value"] = (*slowest)["value"];
    document["limit"] = kBoundSeconds;
    document["limit_name"] = "from the kill to the next completed step, the slowest arm's median";
    document["ratio_to_limit"] = (*slowest)["value"].get<double>() / kBoundSeconds;
    document["step_seconds"] = (*slowest)["step_seconds"];
  }
  if (ladder) document["ladder"] = ladder_json(*ladder);
  return document;
}

std::string kills_text(const json& document) {
  const json& shape = document["shape"];
  std::string text = fmt::format(
      "kills: {} ranks, {} tokens, {} layers of {} {} experts, {} slots, f = {}; a checkpoint "
      "every {} steps, killed in step {}; load before {:.1f}\n",
      shape["ranks"].get<int>(), shape["tokens_per_step"].get<uint64_t>(),
      shape["layers"].get<int>(), shape["experts"].get<int>(),
      shape["expert_state"].get<std::string>(), shape["slots"].get<int>(),
      shape["replicas_min"].get<int>(), shape["checkpoint_every"].get<int>(),
      shape["killed_in_step"].get<int>(), document["machine"]["load_average_before"].get<double>());
  for (const json& row : document["rows"]) {
    text += fmt::format("{:<8} {}, {} runs\n", row["arm"].get<std::string>(),
                        row["what"].get<std::string>(), row["runs"].size());
  }
  for (const json& row : document["rows"]) text += row_text(row);
  if (document.contains("ladder")) text += ladder_text(document["ladder"]);
  return text;
}

}  // namespace bench
