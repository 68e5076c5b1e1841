// Text and JSON of simulated sharded systems. Pure: values in, text out.
#pragma once

#include <string>
#include <vector>

#include "trainer/simulate/sharded/sharded_study.h"

namespace moetrain::simulate::sharded {

struct ShardedComparison {
  std::string model;  // name, for people
  const std::vector<SystemOnShape>& results;
  const std::vector<SystemOnShape>& ablation;  // may be empty
  const std::vector<ShardedVaried>& varied;    // may be empty
  const std::vector<const ShardedSystem*>& systems;
};

// For every shape a row for each system: step, its parts, tokens of the busiest rank over the mean;
// then the ablation and the sensitivity, if there are any.
std::string sharded_text(const ShardedComparison& comparison);

// One JSON document: {model, shapes:{NAME:{SYSTEM:{step_s, parts:{dense, experts, waiting,
// all_to_all, exposed, other}, max_over_mean, exchange_s, restore_bytes, reshard_bytes}}},
// ablation:{the same}, sensitivity:[{parameter, factor, step_s:{SYSTEM:...}}]}. Seconds.
std::string sharded_json(const ShardedComparison& comparison);

}  // namespace moetrain::simulate::sharded
