// StepReporter: reports every completed step to the supervisor, and the versions that the first
// step after a recovery began with.
//
// Owned by EpochDriver, used from the rank's thread. Keeps the facts of a recovery until a step is
// reported, even if epochs fail in between.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/rank/rank_state.h"
#include "trainer/rank/snapshot_stall.h"
#include "trainer/rank/step_placement.h"

namespace moetrain {

struct StepTime {
  double ms = 0;         // from boundary to boundary
  double waited_ms = 0;  // in collectives
  PlanWait plan;         // before the step
};

class StepReporter {
 public:
  explicit StepReporter(RankState& state) : state_(state) {}

  // All ranks resumed from a checkpoint, at the step of the progress. `versions`, by expert of the
  // grid: the step of the restored version.
  void resumed(std::vector<int64_t> versions);
  // These experts of the grid were restored alone. `versions`: the step of each one's version, -1
  // where it began again from the seed.
  void rolled_back(std::span<const uint32_t> experts, std::span<const int64_t> versions);
  // The step is done. Its loss is the rank's last one from now on.
  void report(const StepResult& result, const StepTime& time, const SnapshotStall& stall);

 private:
  ExpertExchange exchange(const StepResult& result, const PlanWait& plan) const;

  RankState& state_;
  int64_t resumed_at_ = -1;  // -1: not since the last report
  std::vector<int64_t> resumed_versions_;
  std::vector<uint32_t> rolled_back_;
  std::vector<int64_t> rolled_back_to_;
};

}  // namespace moetrain
