// ScheduleTracer: reports the activities of the rank's threads in the first steps that the process
// trains (--schedule-trace).
#pragma once

#include <cstdint>

#include "trainer/rank/rank_state.h"

namespace moetrain {

// Owned by StepLoop, used from the rank's thread.
class ScheduleTracer {
 public:
  static constexpr uint32_t kSteps = 3;

  explicit ScheduleTracer(RankState& state) : state_(state) {}

  // Before a step is computed, and once it is done. A step that fails is not reported.
  void begin_step();
  void step_done(uint64_t step);

 private:
  bool traces() const { return state_.options.trace_schedule && traced_ < kSteps; }

  RankState& state_;
  uint32_t traced_ = 0;
};

}  // namespace moetrain
