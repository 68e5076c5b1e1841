// What was measured, as a model file of the simulator. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/calibrate/measure.h"
#include "trainer/report/report.h"
#include "trainer/simulate/cost_model.h"

namespace moetrain::calibrate {

struct Measured {
  TrainConfig config;
  uint32_t ranks = 1;
  Compute compute;
  Network network;
  double copy_bytes_per_s = 0;
  // Runs on this machine that lost one rank each, which said when: one that saved some checkpoints
  // and resumed from them, and one in which the others went on, with replicas: slots() of them.
  report::Report restarted;
  report::Report went_on;
};

// How often each expert is held, and the slots of each rank and layer for that, even without one of
// the `ranks` (>= 2).
inline constexpr uint32_t kReplicas = 2;
uint32_t slots(const ModelConfig& shape, uint32_t ranks);

struct MeasuredModel {
  simulate::CostModel model;
  std::vector<std::string> comments;  // for each of simulate::parameters(): where it is from
};

// What cannot be measured on one machine (a shared store, a wait of NCCL) is what is nearest to it
// here, or assumed, and its comment says so. kFailedPrecondition if nothing was saved, nobody lost,
// or nobody went on.
Result<MeasuredModel> measured_model(const Measured& measured);

}  // namespace moetrain::calibrate
