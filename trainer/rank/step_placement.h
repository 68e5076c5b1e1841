// StepPlacement: which rank computes which expert in each step, where experts are sharded.
//
// A rank owns a part of every expert and can compute any, so a new placement moves no state: the
// store restores other experts (parallel/sharded_store.h). Every rank plans by itself, from the
// same counts (parallel/step_planner.h), so nothing is exchanged. Replicated experts stay where
// they are until ReplanDriver moves them.
//
// Owned by EpochDriver, used from the rank's thread. Its planner has a thread of its own, which
// ends with the epoch's planner.
#pragma once

#include <memory>

#include "trainer/parallel/step_planner.h"
#include "trainer/rank/rank_state.h"

namespace moetrain {

// A step waited for its plan, which was not ready.
struct PlanWait {
  uint64_t waits = 0;  // 0 or 1
  double ms = 0;
};

class StepPlacement {
 public:
  explicit StepPlacement(RankState& state) : state_(state) {}

  // An epoch begins to train, from the step and the counts that all ranks have restored.
  Status begin();
  // Before step progress.step + 1 is computed: places experts by its plan, which is waited for, and
  // starts the plan of the step after it.
  Status place();
  // The wait in the last place().
  PlanWait wait() const { return wait_; }
  // Step progress.step is done: its counts join those that snapshots save.
  void step_done();

 private:
  RankState& state_;
  std::unique_ptr<StepPlanner> planner_;  // null: experts are replicated
  PlanWait wait_;
};

}  // namespace moetrain
