// Studies: many simulations on one cluster: the best interval of a system, and the sensitivity of a
// comparison to its parameters.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "trainer/simulate/engine.h"

namespace moetrain::simulate {

// Called before each simulation of a study; may be empty.
using Progressed = std::function<void(size_t done, size_t of)>;

struct Tried {
  SystemOptions options;
  Outcome outcome;
};

// 1, 2, 5, 10, ... steps between checkpoints, up to the first that is longer than the trace (or
// 10^6), each with joiners taken in at once and only with the next recovery: the one with the most
// samples, of equals the first. The given options are among those tried.
Result<Tried> best_options(const Scenario& scenario, const System& system);

struct PolicyResult {
  const System* system = nullptr;
  Tried given;
  Tried best;  // == given unless asked for; `ours` stays as it is given
};
Result<std::vector<PolicyResult>> compare(const Scenario& scenario,
                                          const std::vector<const System*>& systems,
                                          bool with_best);

// One parameter at half and at one and a half times its value (shares: at most 1; counts: rounded).
struct Varied {
  const Parameter* parameter = nullptr;  // nullptr: none, the model as it is
  double value = 0;
  std::vector<double> goodput;  // of each system
};
// Systems at their given intervals; the first entry is the model as it is.
Result<std::vector<Varied>> sensitivity(const Scenario& scenario,
                                        const std::vector<const System*>& systems,
                                        const Progressed& progressed = {});

}  // namespace moetrain::simulate
