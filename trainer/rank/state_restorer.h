// StateRestorer: restores a rank's state at the start of an epoch in which no survivors continue:
// to a view that ckptd names, or to the seed.
//
// Owned by EpochDriver, used from the rank's thread. After a failure the state in memory belongs to
// no step; the next epoch restores it again, or takes it over from other ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/checkpoint/restored_versions.h"
#include "trainer/rank/epoch_comm.h"
#include "trainer/rank/pace_driver.h"
#include "trainer/rank/rank_state.h"
#include "trainer/rank/recovery_report.h"
#include "trainer/rank/step_reporter.h"

namespace moetrain {

// Sharded experts: who computes them in the state's group before any step is planned.
Result<ComputePlacement> first_sharded_placement(const RankState& state);

class StateRestorer {
 public:
  StateRestorer(RankState& state, PaceDriver& pace, StepReporter& reporter)
      : state_(state), pace_(pace), reporter_(reporter) {}

  // This rank's part: places the experts for the state's group, and fills the model and the
  // progress. No collective.
  Result<RecoveryReport> restore(const ckpt::client::Epoch& epoch);
  // A collective, after restore() of this view: all ranks come to the same version of each unit,
  // and learn which versions the others' experts have. If a dense unit or the trainer unit cannot
  // be read as of the view, requests an older view from the member; the error is kAborted.
  Status settle(EpochComm& comm, const ckpt::client::ViewPoint& view, RecoveryReport& report);

  // True if the state that the epoch started with equals what a full checkpoint of that step has:
  // no expert came from an older checkpoint, or from a version that is only in memory.
  bool resumed_whole() const { return resumed_whole_; }

 private:
  Result<ComputePlacement> first_placement_of_group() const;
  Status restore_view(const ckpt::client::Epoch& epoch, RecoveryReport& report);
  // Takes over the restored trainer unit, if it belongs to this run as it is configured now.
  Status take_over(const ckpt::client::ViewPoint& view);
  Status check_whole(EpochComm& comm, const ckpt::client::ViewPoint& view);
  void take_versions();

  RankState& state_;
  PaceDriver& pace_;
  StepReporter& reporter_;
  PartialState saved_partial_;  // of the restored trainer unit
  PaceState saved_pace_;        // the same
  std::vector<RestoredUnit> restored_;
  std::vector<int64_t> in_memory_;  // by expert of the grid: not 0 if its version is only in memory
  bool resumed_whole_ = true;
};

}  // namespace moetrain
