#include "trainer/simulate/sharded/sharded_study.h"

#include <algorithm>
#include <cmath>

namespace moetrain::simulate::sharded {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr double kZipfMax = 4;

// The shapes of another model that have these names.
std::vector<const Shape*> same_shapes(const ShardedModel& model,
                                      const std::vector<const Shape*>& shapes) {
  std::vector<const Shape*> found;
  found.reserve(shapes.size());
  for (const Shape* shape : shapes) {
    found.push_back(&*std::ranges::find(model.shapes, shape->name, &Shape::name));
  }
  return found;
}

double scaled(const ShardedParameter& parameter, double value, double factor) {
  const double wanted = parameter.whole ? std::round(value * factor) : value * factor;
  return std::clamp(wanted, parameter.low, parameter.high);
}

// False if nothing changed.
bool scale(ShardedModel& model, const ShardedParameter& parameter, double factor) {
  bool changed = false;
  const auto apply = [&](double& value) {
    const double before = value;
    value = scaled(parameter, before, factor);
    changed = changed || value != before;
  };
  if (parameter.field != nullptr) apply(model.*parameter.field);
  for (Shape& shape : model.shapes) {
    if (parameter.shape_field != nullptr) apply(shape.*parameter.shape_field);
  }
  return changed;
}

Result<std::vector<double>> mean_steps(const ShardedModel& model,
                                       const std::vector<const Shape*>& shapes,
                                       const std::vector<const ShardedSystem*>& systems,
                                       const Sampling& sampling) {
  CKPT_ASSIGN(const std::vector<SystemOnShape> all,
              compare_sharded(model, shapes, systems, sampling));
  std::vector<double> means(systems.size());
  for (size_t i = 0; i < all.size(); ++i) {
    means[i % systems.size()] += all[i].outcome.step.total() / static_cast<double>(shapes.size());
  }
  return means;
}

}  // namespace

Result<std::vector<SystemOnShape>> compare_sharded(const ShardedModel& model,
                                                   const std::vector<const Shape*>& shapes,
                                                   const std::vector<const ShardedSystem*>& systems,
                                                   const Sampling& sampling) {
  std::vector<SystemOnShape> results;
  results.reserve(shapes.size() * systems.size());
  for (const Shape* shape : shapes) {
    for (const ShardedSystem* system : systems) {
      CKPT_ASSIGN(const ShardedOutcome outcome, simulate_step(model, *shape, *system, sampling));
      results.push_back({shape, system, outcome});
    }
  }
  return results;
}

Result<std::vector<ShardedVaried>> vary_sharded(const ShardedModel& model,
                                                const std::vector<const Shape*>& shapes,
                                                const std::vector<const ShardedSystem*>& systems,
                                                const Sampling& sampling,
                                                const Progressed& progressed) {
  std::vector<std::pair<ShardedVaried, ShardedModel>> rows{{{}, model}};
  for (const ShardedParameter& parameter : sharded_parameters()) {
    if (!parameter.vary) continue;
    for (const double factor : {0.5, 1.5}) {
      ShardedModel other = model;
      if (!scale(other, parameter, factor)) continue;
      rows.push_back({{.parameter = &parameter, .factor = factor, .step_s = {}}, other});
    }
  }
  std::vector<ShardedVaried> varied;
  varied.reserve(rows.size());
  for (auto& [row, other] : rows) {
    if (progressed) progressed(varied.size(), rows.size());
    CKPT_ASSIGN(row.step_s, mean_steps(other, same_shapes(other, shapes), systems, sampling));
    varied.push_back(std::move(row));
  }
  return varied;
}

Result<double> fit_skew(const ShardedModel& model, const Shape& shape, double max_over_mean,
                        const Sampling& sampling) {
  CKPT_ASSIGN(const std::vector<const ShardedSystem*> fsdp, parse_sharded_systems("fsdp-ep"));
  Shape tried = shape;
  const auto imbalance_at = [&](double zipf) -> Result<double> {
    tried.zipf = zipf;
    CKPT_ASSIGN(const ShardedOutcome outcome, simulate_step(model, tried, *fsdp[0], sampling));
    return outcome.max_over_mean;
  };
  double low = 0;
  double high = kZipfMax;
  CKPT_ASSIGN(const double least, imbalance_at(low));
  CKPT_ASSIGN(const double most, imbalance_at(high));
  if (max_over_mean < least || max_over_mean > most) {
    return make_error(ErrorCode::kInvalidArgument,
                      "max/mean {} of {}: from {:.3f} without skew to {:.3f} at zipf {}",
                      max_over_mean, shape.name, least, most, kZipfMax);
  }
  while (high - low > 0.001) {
    const double middle = (low + high) / 2;
    CKPT_ASSIGN(const double found, imbalance_at(middle));
    (found < max_over_mean ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace moetrain::simulate::sharded
