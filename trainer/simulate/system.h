// Systems: the compared systems. Each is a few properties of one simulation, so that systems differ
// in nothing else. docs/simulator.md says what each omits of the system that it is named after.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/placement/policy.h"
#include "trainer/simulate/cost_model.h"

namespace moetrain::simulate {

struct System {
  std::string_view name;
  PolicyName placement = PolicyName::kStatic;  // kStatic: whole expert parallel groups, no others
  bool from_replicas = false;                  // survivors continue, while they hold every expert
  bool rolls_back = false;                     // restores only lost experts; else all ranks rewind
  bool in_memory = false;    // snapshots go to host memory first, in the background
  bool to_peer = false;      // to that of another node, too, which may serve them after a loss
  bool partial = false;      // K experts of each layer per checkpoint; PLT
  bool detects = false;      // has ours_detect_s and ours_regroup_s
  double CostModel::*steps;  // between checkpoints, in the model file
};

// ds, ds-ft, gemini, moc, lazarus, ours.
std::span<const System> systems();
// kInvalidArgument, naming all of them.
Result<const System*> find_system(std::string_view name);
// "a,b,c" or "all"; no name twice.
Result<std::vector<const System*>> parse_systems(std::string_view names);

}  // namespace moetrain::simulate
