// Converts measurements to a model file of the simulator. Pure.
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
  // Runs on this machine that each lost one rank at a known time. In `restarted` all ranks resumed
  // from checkpoints. In `continued` the survivors continued, with kReplicas replicas in slots()
  // slots.
  report::Report restarted;
  report::Report continued;
};

// Replicas of each expert, and the slots of each rank and layer that hold them even without one of
// the `ranks` (>= 2).
inline constexpr uint32_t kReplicas = 2;
uint32_t slots(const ModelConfig& shape, uint32_t ranks);

struct MeasuredModel {
  simulate::CostModel model;
  std::vector<std::string> comments;  // by simulate::parameters(): the origin of each
};

// Parameters that one machine cannot measure (a shared store, a wait of NCCL) are approximated
// here or assumed, and their comments say so. kFailedPrecondition if nothing was saved, no rank
// was lost, or no survivors continued.
Result<MeasuredModel> measured_model(const Measured& measured);

}  // namespace moetrain::calibrate
