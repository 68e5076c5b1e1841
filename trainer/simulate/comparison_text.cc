#include <nlohmann/json.hpp>

#include "formats/base/json_dump.h"
#include "trainer/simulate/render.h"

namespace moetrain::simulate {

namespace {

double share(const Outcome& outcome, Kind kind) {
  const auto total = static_cast<double>(outcome.total());
  return total > 0 ? 100 * static_cast<double>(outcome.of(kind)) / total : 0;
}

double of_ideal(const Outcome& outcome) {
  return outcome.ideal_samples > 0 ? outcome.samples / outcome.ideal_samples : 0;
}

std::string row(const std::string& name, const Tried& tried) {
  const Outcome& outcome = tried.outcome;
  std::string text =
      fmt::format("{:<10} {:>7} {:>10.2f} {:>6.1f}% {:>6.3f}", name, tried.options.checkpoint_steps,
                  outcome.goodput(), 100 * of_ideal(outcome), outcome.ettr());
  for (size_t kind = 0; kind < kKinds; ++kind) {
    text += fmt::format(" {:>10.1f}%", share(outcome, static_cast<Kind>(kind)));
  }
  return text + fmt::format(" {:>8} {:>8} {:>6.2f}%\n", outcome.failures, outcome.rewinds,
                            100 * outcome.plt);
}

std::string sensitivity_text(const Comparison& comparison) {
  std::string text = "\nGoodput (samples/s) when one parameter is another\n";
  text += fmt::format("{:<36} {:>12}", "parameter", "value");
  for (const PolicyResult& one : comparison.results) {
    text += fmt::format(" {:>9}", one.system->name);
  }
  text += "\n";
  for (const Varied& varied : comparison.varied) {
    const std::string name =
        varied.parameter == nullptr
            ? "as given"
            : fmt::format("{}.{}", varied.parameter->section, varied.parameter->key);
    text += fmt::format("{:<36} {:>12}", name,
                        varied.parameter == nullptr ? "" : fmt::format("{:.6g}", varied.value));
    for (const double goodput : varied.goodput) text += fmt::format(" {:>9.2f}", goodput);
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json to_json(const Tried& tried) {
  const Outcome& outcome = tried.outcome;
  nlohmann::ordered_json time;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    time[std::string(kind_name(static_cast<Kind>(kind)))] =
        static_cast<double>(outcome.time[kind]) / kSecond;
  }
  return {{"checkpoint_steps", tried.options.checkpoint_steps},
          {"takes_joiners_at_once", tried.options.take_joiners},
          {"goodput", outcome.goodput()},
          {"ettr", outcome.ettr()},
          {"samples", outcome.samples},
          {"of_ideal", of_ideal(outcome)},
          {"time", std::move(time)},
          {"plt", outcome.plt},
          {"steps", outcome.steps},
          {"failures", outcome.failures},
          {"rewinds", outcome.rewinds},
          {"experts_rolled_back", outcome.rolled_back},
          {"checkpoints", outcome.checkpoints},
          {"checkpoints_skipped", outcome.skipped}};
}

}  // namespace

std::string comparison_text(const Comparison& comparison) {
  std::string text =
      fmt::format("{} on {}: {} nodes, {} events, {:.1f} min\n", comparison.model, comparison.trace,
                  comparison.nodes.names.size(), comparison.nodes.events.size(),
                  static_cast<double>(comparison.nodes.end) / kSecond / 60);
  text += fmt::format("{:<10} {:>7} {:>10} {:>7} {:>6}", "policy", "every", "samples/s", "ideal",
                      "ETTR");
  for (size_t kind = 0; kind < kKinds; ++kind) {
    text += fmt::format(" {:>11}", kind_name(static_cast<Kind>(kind)));
  }
  text += fmt::format(" {:>8} {:>8} {:>7}\n", "failures", "rewinds", "PLT");
  for (const PolicyResult& one : comparison.results) {
    text += row(std::string(one.system->name), one.given);
    const bool better = one.best.outcome.samples > one.given.outcome.samples;
    if (comparison.with_best && better) {
      text +=
          row(fmt::format(" {}{}", "at best", one.best.options.take_joiners ? "" : "*"), one.best);
    }
  }
  text += "every: steps from one checkpoint to the next";
  if (comparison.with_best) text += "; *: joiners only taken in with the next recovery";
  text += "\n";
  if (!comparison.varied.empty()) text += sensitivity_text(comparison);
  return text;
}

std::string comparison_json(const Comparison& comparison) {
  nlohmann::ordered_json document = {
      {"model", comparison.model},
      {"trace",
       {{"name", comparison.trace},
        {"nodes", comparison.nodes.names.size()},
        {"events", comparison.nodes.events.size()},
        {"seconds", static_cast<double>(comparison.nodes.end) / kSecond}}}};
  for (const PolicyResult& one : comparison.results) {
    nlohmann::ordered_json policy = to_json(one.given);
    if (comparison.with_best) policy["best"] = to_json(one.best);
    document["policies"][std::string(one.system->name)] = std::move(policy);
  }
  for (const Varied& varied : comparison.varied) {
    nlohmann::ordered_json entry;
    if (varied.parameter == nullptr) {
      entry["parameter"] = nullptr;
    } else {
      entry["parameter"] = fmt::format("{}.{}", varied.parameter->section, varied.parameter->key);
      entry["value"] = varied.value;
    }
    for (size_t i = 0; i < varied.goodput.size(); ++i) {
      entry["goodput"][std::string(comparison.results[i].system->name)] = varied.goodput[i];
    }
    document["sensitivity"].push_back(std::move(entry));
  }
  return ckpt::base::dump_json(document);
}

}  // namespace moetrain::simulate
