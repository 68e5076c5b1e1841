// Small clusters and models whose times are round numbers, for tests of the simulator.
#pragma once

#include <gtest/gtest.h>

#include "trainer/simulate/engine.h"

namespace simtest {

using namespace moetrain::simulate;  // NOLINT(google-build-using-namespace): that is what is tested

// Two layers of four experts; static expert parallelism needs two nodes, replicas have three slots.
// A step of any number of ranks takes exactly one second while loads are even; nothing else takes
// time, until a test says what does.
CostModel plain_model();

// Nodes 0 .. count-1 at time 0, then these events (seconds), until `end_s`.
struct At {
  double seconds;
  bool add;
  uint32_t node;
};
NodeTrace trace_of(uint32_t count, const std::vector<At>& events, double end_s);

const System& system_of(std::string_view name);

// The system at this interval; fails the test if it cannot be simulated.
Outcome run(const CostModel& model, const NodeTrace& trace, std::string_view system,
            uint64_t checkpoint_steps);

// A random cluster: model, trace and interval, all from the seed. Small enough to be run often.
struct Case {
  CostModel model;
  NodeTrace trace;
  uint64_t checkpoint_steps = 1;
};
Case random_case(uint64_t seed);

}  // namespace simtest
