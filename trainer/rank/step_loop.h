// StepLoop: training steps, from boundary to boundary, until the ranks stop or their group is to
// change.
//
// Owned by EpochDriver, used from the rank's thread. A step is applied by every rank or by none
// (agreement.h). After a lost group the state is that of the last applied step; what the rank had
// computed of the next one stays in LiveState, for the survivors to agree on.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/rank/boundary.h"
#include "trainer/rank/checkpoint_driver.h"
#include "trainer/rank/epoch_comm.h"
#include "trainer/rank/fault_injection.h"
#include "trainer/rank/pace_driver.h"
#include "trainer/rank/rank_state.h"
#include "trainer/rank/replan_driver.h"
#include "trainer/rank/saved_steps.h"
#include "trainer/rank/schedule_tracer.h"
#include "trainer/rank/snapshot_taker.h"
#include "trainer/rank/step_placement.h"
#include "trainer/rank/step_reporter.h"

namespace moetrain {

class StepLoop {
 public:
  struct Parts {
    RankState& state;
    SavedSteps& saved;
    SnapshotTaker& taker;
    CheckpointDriver& checkpoints;
    PaceDriver& pace;
    ReplanDriver& replan;
    StepPlacement& placement;
    LiveState& live;
    StepReporter& reporter;
    FaultInjection& faults;
  };
  explicit StepLoop(const Parts& parts) : parts_(parts), tracer_(parts.state) {}

  // Why the ranks stop training. All stop at the same boundary, for the same reason.
  enum class Stop {
    kLastStep,  // the run is complete, or was asked to stop: the current step is to be saved
    kDrain,     // a rank was asked to leave
    kJoin,      // other processes wait to join
  };
  // A collective. An error for which is_group_loss() is true means that the group must be left.
  Result<Stop> run(EpochComm& comm);
  // True if the last run() has begun a step.
  bool stepped() const { return stepped_; }

  // A collective: the boundary of a step. `snapshot_early`: begins the snapshot that is due before
  // the ranks meet; afterwards it is to be filled or dropped.
  Result<Boundary> meet(EpochComm& comm, bool snapshot_early);

 private:
  class Timer;
  Status step(EpochComm& comm, const Timer& timer);
  Result<StepResult> all_or_none_step(Comm& comm);
  Result<StepResult> plain_step(Comm& comm);
  Status check_routing_of_step(std::span<const int64_t> routed) const;
  void report(const StepResult& result, const Timer& timer, bool after_snapshot);
  Status check_step(EpochComm& comm, uint64_t step);
  Trainer::BeforeWrite before_write();

  const Parts parts_;
  ScheduleTracer tracer_;
  bool stepped_ = false;
};

}  // namespace moetrain
