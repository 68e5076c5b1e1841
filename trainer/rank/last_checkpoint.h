// LastCheckpoint: saves the step at which the ranks stop. The run ends only when it is durable.
//
// Owned by EpochDriver, used from the rank's thread. All ranks make the same attempts, because each
// begins and ends with what they agree on. If the group is lost meanwhile, the next epoch saves
// again, under the same deadline unless it trains first.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "trainer/rank/checkpoint_driver.h"
#include "trainer/rank/epoch_comm.h"
#include "trainer/rank/rank_state.h"
#include "trainer/rank/saved_steps.h"
#include "trainer/rank/snapshot_taker.h"
#include "trainer/rank/step_loop.h"

namespace moetrain {

// A peer is gone or hangs, so the group must be left.
struct GroupLoss {
  std::string reason;
};

class LastCheckpoint {
 public:
  struct Parts {
    RankState& state;
    SavedSteps& saved;
    SnapshotTaker& taker;
    CheckpointDriver& checkpoints;
    StepLoop& steps;
  };
  explicit LastCheckpoint(const Parts& parts) : parts_(parts) {}

  // A collective. Returns nothing once the current step is durable. An error is final: the step
  // cannot be saved. `resumed_whole`: if nothing was trained since the resume, the checkpoint that
  // the ranks resumed from is as good as a full one of the step.
  Result<std::optional<GroupLoss>> save(EpochComm& comm, bool resumed_whole);
  // The ranks have trained: the next save() has the full time again.
  void renew_deadline() { end_.reset(); }

 private:
  Result<bool> is_durable(EpochComm& comm);
  Result<std::optional<GroupLoss>> save_full(EpochComm& comm);
  std::chrono::steady_clock::time_point end();
  uint32_t ms_left();

  const Parts parts_;
  std::optional<std::chrono::steady_clock::time_point> end_;  // of all attempts, in all epochs
};

}  // namespace moetrain
