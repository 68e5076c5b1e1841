#include "trainer/simulate/study.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace moetrain::simulate {

namespace {

constexpr uint64_t kStepsMax = 1'000'000;

Result<Tried> attempt(const Scenario& scenario, const System& system,
                      const SystemOptions& options) {
  CKPT_ASSIGN(Outcome outcome, simulate(scenario, system, options));
  return Tried{options, std::move(outcome)};
}

}  // namespace

Result<Tried> best_options(const Scenario& scenario, const System& system) {
  CKPT_ASSIGN(Tried best, attempt(scenario, system, default_options(scenario.model, system)));
  constexpr uint64_t kMantissas[] = {1, 2, 5};
  bool enough = false;
  for (uint64_t tens = 1; tens < kStepsMax && !enough; tens *= 10) {
    for (const uint64_t mantissa : kMantissas) {
      for (const bool join : {true, false}) {
        CKPT_ASSIGN(Tried tried, attempt(scenario, system, {mantissa * tens, join}));
        // No checkpoint was due: longer intervals are the same.
        if (tried.outcome.checkpoints + tried.outcome.skipped == 0) enough = true;
        if (tried.outcome.samples > best.outcome.samples) best = std::move(tried);
      }
      if (enough) break;
    }
  }
  return best;
}

Result<std::vector<PolicyResult>> compare(const Scenario& scenario,
                                          const std::vector<const System*>& systems,
                                          bool with_best) {
  std::vector<PolicyResult> results;
  results.reserve(systems.size());
  for (const System* system : systems) {
    PolicyResult result{.system = system, .given = {}, .best = {}};
    CKPT_ASSIGN(result.given, attempt(scenario, *system, default_options(scenario.model, *system)));
    result.best = result.given;
    if (with_best && system->name != "ours") {
      CKPT_ASSIGN(result.best, best_options(scenario, *system));
    }
    results.push_back(std::move(result));
  }
  return results;
}

Result<std::vector<Varied>> sensitivity(const Scenario& scenario,
                                        const std::vector<const System*>& systems,
                                        const Progressed& progressed) {
  std::vector<Varied> rows;
  rows.push_back({});
  for (const Parameter& parameter : parameters()) {
    if (!parameter.vary) continue;
    for (const double factor : {0.5, 1.5}) {
      const double before = scenario.model.*parameter.field;
      const double wanted = parameter.whole ? std::round(before * factor) : before * factor;
      double high = parameter.high;
      if (parameter.key == "experts_per_checkpoint") high = scenario.model.experts;
      const double value = std::clamp(wanted, parameter.low, high);
      if (value != before) rows.push_back({&parameter, value, {}});
    }
  }
  for (size_t row = 0; row < rows.size(); ++row) {
    if (progressed) progressed(row, rows.size());
    CostModel model = scenario.model;
    if (rows[row].parameter != nullptr) model.*rows[row].parameter->field = rows[row].value;
    // Plans depend on loads and on what does not vary.
    const bool loads = rows[row].parameter != nullptr && rows[row].parameter->section == "load";
    std::optional<LoadModel> own_load;
    if (loads) own_load = scenario.load.varied(model);
    const LoadModel& load = own_load ? *own_load : scenario.load;
    Planner own_planner(model, load);
    const Scenario varied{model, scenario.trace, load, loads ? own_planner : scenario.planner};
    for (const System* system : systems) {
      CKPT_ASSIGN(const Outcome outcome,
                  simulate(varied, *system, default_options(model, *system)));
      rows[row].goodput.push_back(outcome.goodput());
    }
  }
  return rows;
}

}  // namespace moetrain::simulate
