// SavedSteps: which step is saved, and which snapshots have failed, as far as this rank knows. No
// I/O.
//
// Owned by EpochDriver; CheckpointDriver and LastCheckpoint report to it. Used from the rank's
// thread. The ranks exchange failures at every boundary (fill(), apply_boundary()): a step whose
// snapshot failed on one rank is unsaved on all. If survivors continue, the saved steps stay known
// in the next epoch.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "trainer/checkpoint/partial_checkpoint.h"
#include "trainer/loop.h"
#include "trainer/rank/boundary.h"

namespace moetrain {

class SavedSteps {
 public:
  // Both outlive it. Failed snapshots are reported to `partial`: their experts are due again.
  SavedSteps(PartialCheckpoint& partial, const Progress& progress)
      : partial_(partial), progress_(progress) {}

  // An epoch was joined and its group is connected.
  void begin_epoch(bool survivors_continue);
  // The ranks have restored the current step, which therefore is saved; or the run begins.
  void resumed();
  // Survivors agree that this is the newest step that is saved or in flight.
  void agreed(uint64_t newest) { newest_ = newest; }
  // The epoch continues its lineage with the survivors' state. Call after agreed().
  void lineage_continued();

  // The newest step that is saved, or whose snapshot is in flight; 0: none.
  uint64_t newest() const { return newest_; }
  bool current_is_saved() const { return newest_ == progress_.step; }
  // True if an epoch that continues its lineage began at the current step, which is committed or in
  // flight. The lineage cannot have a second commit of the step, so training must continue for one
  // more step before it can end: that commit may be partial, or have experts that have rolled back
  // since.
  bool saved_before() const { return continues_lineage_ && current_is_saved(); }

  // The snapshot of the current step is in flight.
  void taken() { newest_ = progress_.step; }
  // The snapshot that was taken was not filled after all.
  void not_filled() { newest_ = 0; }
  // The snapshot of the current step was aborted, on every rank.
  void dropped() { partial_.failed(progress_.step); }
  // This rank could not contribute to the snapshot of the current step. `unanswered`: because ckptd
  // did not answer.
  void failed(bool unanswered);
  // Snapshots of these steps failed after this rank had contributed.
  void lost(const std::vector<uint64_t>& steps) { lost_.insert(steps.begin(), steps.end()); }
  bool current_is_lost() const { return lost_.contains(progress_.step); }
  // All ranks know that the snapshot of the current step failed, and save it again.
  void retry_save();

  // States what the other ranks have to know.
  void fill(Boundary& mine);
  // The ranks have agreed on this.
  void apply_boundary(const Boundary& met);

 private:
  void not_saved(uint64_t step);

  PartialCheckpoint& partial_;
  const Progress& progress_;
  bool continues_lineage_ = false;
  uint64_t newest_ = 0;
  // Not yet reported to the others. `lost_` may have steps of earlier epochs that the group
  // continues.
  std::set<uint64_t> failed_;
  std::set<uint64_t> lost_;
  bool retake_ = false;  // ckptd did not answer this rank
};

}  // namespace moetrain
