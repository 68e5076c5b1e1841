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
  report::Report run;  // a run on this machine that lost one rank and saved some checkpoints
};

struct MeasuredModel {
  simulate::CostModel model;
  std::vector<std::string> comments;  // for each of simulate::parameters(): where it is from
};

// What cannot be measured on one machine (a shared store, a wait of NCCL) is what is nearest to it
// here, and its comment says so. kFailedPrecondition if the run saved nothing or lost nobody.
Result<MeasuredModel> measured_model(const Measured& measured);

}  // namespace moetrain::calibrate
