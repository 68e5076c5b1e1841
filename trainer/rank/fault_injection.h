// FaultInjection: kills this process, or requests that it leaves, at the points in the options. For
// tests and measurements only.
//
// Owned by EpochDriver, used from the rank's thread. A kill is by SIGKILL: nothing runs afterwards.
#pragma once

#include <cstdint>
#include <string_view>

#include "trainer/rank/rank_state.h"

namespace moetrain {

class FaultInjection {
 public:
  explicit FaultInjection(const RankState& state) : state_(state) {}

  // A membership change reaches one of kPhases: kills the process if `kill_in` names it.
  void enter_phase(std::string_view phase) const;
  // The gradients of `step` are complete and nothing has changed yet: kills the process if
  // `kill_at` names this step or an earlier one.
  void before_update(uint64_t step) const;
  // `step` is done: sends this process the signal to leave if `leave_after` names this step or an
  // earlier one. The next boundary sees the request.
  void step_done(uint64_t step) const;

 private:
  void die(uint64_t step, std::string_view phase) const;

  const RankState& state_;
};

}  // namespace moetrain
