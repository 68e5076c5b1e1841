// CheckpointDriver: when snapshots are taken. All ranks take the same ones: each acts on what the
// group has agreed on at the boundary.
//
// Owned by EpochDriver, used from the rank's thread. A failed snapshot is reported to the
// supervisor and to the other ranks (SavedSteps); training continues, and the next due snapshot
// covers it. After a lost group, begin_epoch() sets it up for the next one.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/rank/boundary.h"
#include "trainer/rank/epoch_comm.h"
#include "trainer/rank/rank_state.h"
#include "trainer/rank/saved_steps.h"
#include "trainer/rank/snapshot_taker.h"

namespace moetrain {

class CheckpointDriver {
 public:
  CheckpointDriver(RankState& state, SavedSteps& saved, SnapshotTaker& taker)
      : state_(state), saved_(saved), taker_(taker) {}

  // An epoch was joined and its group is connected.
  void begin_epoch(const ckpt::client::Epoch& epoch);

  // True if a snapshot should be begun before the ranks meet, so that ckptd leases slabs meanwhile.
  // Not if ckptd did not answer some rank at the last boundary: then the ranks first meet again.
  bool begins_early() { return is_due() && !daemon_absent_; }
  // Begins the due snapshot, before the ranks meet, where a failure is reported to the others.
  // `daemon_absent`: ckptd does not answer this rank; it only plans.
  void begin_early(bool daemon_absent);
  // Reports snapshots that have ended. Callable before the first epoch is connected.
  void collect();
  // The same, after handing over the parts that have arrived from the device. An error is the
  // device's.
  Status poll();
  // Before and after the ranks meet.
  void fill(Boundary& mine) { saved_.fill(mine); }
  void apply_boundary(const Boundary& met);
  // After the ranks have met: fills the snapshot that was begun early, or takes the one that is
  // due, or none. `experts_move`: experts are placed anew before the step computes.
  struct Taking {
    bool early = false;
    bool experts_move = false;
  };
  void take(EpochComm& comm, const Boundary& met, const Taking& taking);
  // Aborts the snapshot of the current step that was begun. All ranks do so at the same boundary.
  void drop(const std::string& reason);
  // The step has ended, with or without an error. If it did not reach the point where it fills the
  // snapshot that take() deferred to it, the snapshot counts as not saved.
  void step_ended();

  // Takes a full snapshot of the current step, for the last checkpoint. `attempt` counts from 0.
  Status take_full(uint32_t attempt, const Snapshotter::BackPressure& pressure);

 private:
  // The last step is not included: LastCheckpoint saves it.
  bool is_due();
  void take_due(EpochComm& comm, const Boundary& met, const Taking& taking);
  Status begin_regular();
  Status fill(const Snapshotter::BackPressure& pressure);
  void fill_regular(EpochComm& comm, bool experts_move);
  Status record(SnapshotTaker::Attempt attempt);

  RankState& state_;
  SavedSteps& saved_;
  SnapshotTaker& taker_;
  bool due_ = false;            // stays set until every rank has ckptd and the snapshot is taken
  bool postponed_ = false;      // the wait for ckptd has been reported
  bool daemon_absent_ = false;  // ckptd did not answer some rank at the last boundary
};

}  // namespace moetrain
