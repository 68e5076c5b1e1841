// Studies of sharded systems: all shapes of a model file, the sensitivity of a comparison to its
// parameters, and the skew that explains a measured imbalance.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/simulate/sharded/step_simulation.h"

namespace moetrain::simulate::sharded {

struct SystemOnShape {
  const Shape* shape = nullptr;
  const ShardedSystem* system = nullptr;
  ShardedOutcome outcome;
};
// Every system on every shape, shape by shape. The pointers are into the arguments.
Result<std::vector<SystemOnShape>> compare_sharded(const ShardedModel& model,
                                                   const std::vector<const Shape*>& shapes,
                                                   const std::vector<const ShardedSystem*>& systems,
                                                   const Sampling& sampling);

// One parameter at half and at one and a half times its value (counts: rounded; ranges: kept).
struct ShardedVaried {
  const ShardedParameter* parameter = nullptr;  // nullptr: none, the model as it is
  double factor = 1;
  std::vector<double> step_s;  // of each system, the mean over shapes
};
using Progressed = std::function<void(size_t done, size_t of)>;
Result<std::vector<ShardedVaried>> vary_sharded(const ShardedModel& model,
                                                const std::vector<const Shape*>& shapes,
                                                const std::vector<const ShardedSystem*>& systems,
                                                const Sampling& sampling,
                                                const Progressed& progressed = {});

// The zipf at which fsdp-ep has this max/mean of tokens on the shape, to 0.001. It rises with zipf.
// kInvalidArgument if noise alone makes it larger, or no skew makes it so large.
Result<double> fit_skew(const ShardedModel& model, const Shape& shape, double max_over_mean,
                        const Sampling& sampling);

}  // namespace moetrain::simulate::sharded
