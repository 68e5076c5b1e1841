// StateMigrator: brings the ranks of a continuing group to the same step, and moves experts to a
// new placement. Replicated experts without a holder are restored from ckptd.
//
// Owned by EpochDriver, which uses it when members change; ReplanDriver uses it when only experts
// move. Used from the rank's thread. After a failure no state is lost (live_state.h): the next
// epoch agrees and migrates again.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "trainer/elastic/live_state.h"
#include "trainer/elastic/lost_experts.h"
#include "trainer/rank/epoch_comm.h"
#include "trainer/rank/fault_injection.h"
#include "trainer/rank/rank_state.h"
#include "trainer/rank/recovery_report.h"
#include "trainer/rank/step_reporter.h"

namespace moetrain {

// Plans placements for the state's group, from its options. `stays`, by rank: false for ranks that
// are about to leave and get no expert; empty: all stay.
PlanPlacement placement_planner(const RankState& state, const std::vector<bool>& stays);

class StateMigrator {
 public:
  StateMigrator(RankState& state, FaultInjection& faults, StepReporter& reporter);

  // Whether this rank has state that others may rely on, and its pending step.
  LiveState& live() { return live_; }

  // A collective: brings all ranks to the same step and the same knowledge of the run.
  // `saved_step`: the newest step that is saved or in flight, as far as this rank knows. Returns
  // that step as the group knows it.
  Result<uint64_t> agree(EpochComm& comm, uint64_t saved_step);
  // A collective, after agree() or live().agree_unchanged(): moves all state to where `planner`
  // places it. Experts without a live holder are restored from their newest versions in `lineage`.
  Result<RecoveryReport> migrate(EpochComm& comm, const PlanPlacement& planner, uint32_t lineage);

 private:
  Result<ExpertRestore> restore_lost(EpochComm& comm, uint32_t lineage, RecoveryReport& report);
  void report_rollback(const LiveState::Settled& settled, uint32_t k_before,
                       RecoveryReport& report);

  RankState& state_;
  FaultInjection& faults_;
  StepReporter& reporter_;
  uint64_t saved_step_ = 0;  // while the ranks agree: LiveState hands it over
  LiveState live_;
};

}  // namespace moetrain
