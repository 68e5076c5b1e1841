// ReplanDriver: places experts anew while the members stay, at the steps that `replan_every` says,
// if that pays (replanner.h).
//
// Owned by EpochDriver, used from the rank's thread. Its measurements outlive an epoch.
#pragma once

#include "trainer/elastic/replanner.h"
#include "trainer/rank/epoch_comm.h"
#include "trainer/rank/rank_state.h"
#include "trainer/rank/state_migrator.h"

namespace moetrain {

class ReplanDriver {
 public:
  ReplanDriver(RankState& state, StateMigrator& migrator);

  // Starts a new window of routed tokens: an epoch begins to train.
  void begin();
  // True if the ranks check their placement before the next step.
  bool due() const { return replanner_.due(state_.progress.step); }
  // A collective. If due, plans from the window's tokens, moves experts if that pays, reports it,
  // and begins a new window.
  Status replan_if_due(EpochComm& comm);

  // Measures what this rank's experts computed in a step.
  void computed(const ExpertWork& work);
  // Measures the newest migration. If it restored experts from ckptd, its time says nothing about
  // moving them, and is not used.
  void migrated(const RecoveryReport& report);

 private:
  Result<Relayout> move(EpochComm& comm, const ComputePlacement& next);

  RankState& state_;
  StateMigrator& migrator_;
  Replanner replanner_;
};

}  // namespace moetrain
