#include "trainer/simulate/sharded/sharded_render.h"

#include <nlohmann/json.hpp>

#include "formats/base/json_dump.h"

namespace moetrain::simulate::sharded {

namespace {

std::string row(const SystemOnShape& one, double first) {
  const StepTime& step = one.outcome.step;
  return fmt::format(
      "  {:<26} {:>9.2f} {:>7.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>9.2f}\n",
      one.system->name, step.total(), step.total() / first, step.dense, step.experts, step.waiting,
      step.all_to_all, step.exposed, step.other, one.outcome.max_over_mean);
}

// Rows of one shape follow each other.
std::string table(const std::vector<SystemOnShape>& results, std::string_view model) {
  std::string text;
  const Shape* shape = nullptr;
  double first = 0;
  for (const SystemOnShape& one : results) {
    if (one.shape != shape) {
      shape = one.shape;
      first = one.outcome.step.total();
      text += fmt::format("{} {}\n  {:<26} {:>9} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}\n",
                          model, shape->name, "policy", "step s", "times", "dense", "experts",
                          "waiting", "all2all", "exposed", "other", "max/mean");
    }
    text += row(one, first);
  }
  return text;
}

std::string name_of(const ShardedVaried& varied) {
  if (varied.parameter == nullptr) return "as given";
  return fmt::format("{}.{}", varied.parameter->section, varied.parameter->key);
}

std::string sensitivity_table(const ShardedComparison& comparison) {
  std::string text = "\nStep (s), mean over shapes, when one parameter is another\n";
  text += fmt::format("{:<40} {:>7}", "parameter", "times");
  for (const ShardedSystem* system : comparison.systems)
    text += fmt::format(" {:>9}", system->name);
  text += "\n";
  for (const ShardedVaried& varied : comparison.varied) {
    text += fmt::format("{:<40} {:>7}", name_of(varied), varied.factor);
    for (const double step : varied.step_s) text += fmt::format(" {:>9.2f}", step);
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json to_json(const ShardedOutcome& outcome) {
  const StepTime& step = outcome.step;
  return {{"step_s", step.total()},
          {"parts",
           {{"dense", step.dense},
            {"experts", step.experts},
            {"waiting", step.waiting},
            {"all_to_all", step.all_to_all},
            {"exposed", step.exposed},
            {"other", step.other}}},
          {"max_over_mean", outcome.max_over_mean},
          {"exchange_s", outcome.exchange_s},
          {"restore_bytes", outcome.restore_bytes},
          {"reshard_bytes", outcome.reshard_bytes}};
}

nlohmann::ordered_json to_json(const std::vector<SystemOnShape>& results) {
  nlohmann::ordered_json document = nlohmann::ordered_json::object();
  for (const SystemOnShape& one : results) {
    document[one.shape->name][std::string(one.system->name)] = to_json(one.outcome);
  }
  return document;
}

}  // namespace

std::string sharded_text(const ShardedComparison& comparison) {
  std::string text = table(comparison.results, comparison.model);
  if (!comparison.ablation.empty()) {
    text += "\nOne ingredient removed\n" + table(comparison.ablation, comparison.model);
  }
  if (!comparison.varied.empty()) text += sensitivity_table(comparison);
  return text;
}

std::string sharded_json(const ShardedComparison& comparison) {
  nlohmann::ordered_json document{{"model", comparison.model},
                                  {"shapes", to_json(comparison.results)}};
  if (!comparison.ablation.empty()) document["ablation"] = to_json(comparison.ablation);
  if (!comparison.varied.empty()) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const ShardedVaried& varied : comparison.varied) {
      nlohmann::ordered_json steps;
      for (size_t i = 0; i < comparison.systems.size(); ++i) {
        steps[std::string(comparison.systems[i]->name)] = varied.step_s[i];
      }
      rows.push_back({{"parameter", name_of(varied)},
                      {"factor", varied.factor},
                      {"step_s", std::move(steps)}});
    }
    document["sensitivity"] = std::move(rows);
  }
  return ckpt::base::dump_json(document);
}

}  // namespace moetrain::simulate::sharded
