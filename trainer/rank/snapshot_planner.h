// SnapshotPlanner: plans the contents of the next snapshot, the same on every rank.
//
// Owned by SnapshotTaker, used from the rank's thread. Every rank plans every snapshot, in the same
// order: planning changes the state (ages of experts, K, pace), and a rank that skipped a plan
// would plan differently from then on.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/checkpoint/snapshotter.h"
#include "trainer/partial/sharding.h"
#include "trainer/rank/pace_driver.h"
#include "trainer/rank/rank_state.h"

namespace moetrain {

struct PlannedSnapshot {
  Snapshotter::Request request;
  TakingEvent taking;  // rank 0 sends it before the snapshot is filled
};

class SnapshotPlanner {
 public:
  SnapshotPlanner(RankState& state, PaceDriver& pace);

  // The snapshot of the step that the progress is at. `full`: of all experts. Writes the trainer
  // unit. kResourceExhausted if the state does not fit into that unit.
  Result<PlannedSnapshot> plan(uint32_t attempt, bool full);

 private:
  PartialCheckpoint::Plan choose_units(bool full);
  Status write_trainer_unit(bool full);
  TakingEvent taking_event(const PartialCheckpoint::Plan& plan, const ShareSummary& bytes,
                           uint64_t memory_bytes) const;
  uint64_t staleness_max() const;
  void describe(Snapshotter::Request& request) const;

  RankState& state_;
  PaceDriver& pace_;
  const std::string config_json_;
};

}  // namespace moetrain
