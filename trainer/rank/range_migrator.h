// RangeMigrator: moves the ranges of sharded experts when survivors continue with all state, and
// ranks have joined or are about to leave. No step is lost (elastic/recut.h).
//
// Owned by EpochDriver, used from the rank's thread. A failure leaves this rank's ranges as they
// were; the next epoch checks again whether its ranks hold all state.
#pragma once

#include <vector>

#include "trainer/elastic/live_state.h"
#include "trainer/elastic/recut.h"
#include "trainer/rank/epoch_comm.h"
#include "trainer/rank/fault_injection.h"
#include "trainer/rank/rank_state.h"
#include "trainer/rank/recovery_report.h"

namespace moetrain {

class RangeMigrator {
 public:
  RangeMigrator(RankState& state, FaultInjection& faults, LiveState& live);

  // A collective, before the ranks agree on a step: true if they hold every element of every expert
  // at one step. If not, a rank was lost with its range.
  Result<bool> is_whole(EpochComm& comm);
  // A collective, after is_whole() and the agreement on a step: brings every rank its range, and
  // joining ranks all that the group knows. `stays`, by rank: false for ranks that are about to
  // leave; empty: all ranks stay, and train.
  Result<RecoveryReport> recut(EpochComm& comm, const std::vector<bool>& stays);
  // Drops the state in memory: the rank is about to restore another one.
  void reset() { recut_.reset(); }

 private:
  Status share_load_window(EpochComm& comm);
  Status train_with(const EpochComm& comm);

  RankState& state_;
  FaultInjection& faults_;
  LiveState& live_;
  Recut recut_;
};

}  // namespace moetrain
