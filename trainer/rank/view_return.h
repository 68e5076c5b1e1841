// ViewReturn: returns all ranks of a continuing group to one view of ckptd, after a lost rank took
// its part of every sharded expert with it.
//
// The view is that of the newest step s whose snapshot every rank had sealed: ckptd keeps the arena
// of a rank that died, and commits s while the ranks connect. All ranks restore everything as of s,
// also those that have applied s + 1, and no rank applies a step that was pending. The epoch and
// its lineage continue, because no step after s was committed. Before the first commit all ranks
// begin again from the seed.
//
// If that view cannot be read as a whole, the same ranks open another epoch from the newest
// complete view, in a lineage of its own: Member::return_to().
//
// Owned by EpochDriver, used from the rank's thread. After a failure the state in memory belongs to
// no step; the next epoch returns again.
#pragma once

#include <optional>
#include <string>

#include "trainer/elastic/live_state.h"
#include "trainer/rank/checkpoint_driver.h"
#include "trainer/rank/epoch_comm.h"
#include "trainer/rank/fault_injection.h"
#include "trainer/rank/range_migrator.h"
#include "trainer/rank/rank_state.h"
#include "trainer/rank/recovery_report.h"
#include "trainer/rank/saved_steps.h"
#include "trainer/rank/state_restorer.h"

namespace moetrain {

class ViewReturn {
 public:
  struct Parts {
    RankState& state;
    LiveState& live;
    RangeMigrator& ranges;
    StateRestorer& restorer;
    SavedSteps& saved;
    CheckpointDriver& checkpoints;
    FaultInjection& faults;
  };
  explicit ViewReturn(const Parts& parts) : parts_(parts) {}

  struct Returned {
    RecoveryReport report;
    std::optional<ckpt::client::ViewPoint> view;  // none: the seed
  };
  // A collective, in an epoch in which survivors continue. kAborted if the member must return to an
  // older view.
  Result<Returned> run(EpochComm& comm, const ckpt::client::Epoch& epoch);

 private:
  using View = std::optional<ckpt::client::ViewPoint>;
  Result<View> agree_on_view(EpochComm& comm, uint32_t lineage);
  Result<RecoveryReport> restore(EpochComm& comm, const ckpt::client::Epoch& epoch);
  ckpt::Error return_to_newest(const std::string& reason);

  const Parts parts_;
};

}  // namespace moetrain
