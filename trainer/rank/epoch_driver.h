// EpochDriver: a rank's membership: joins epoch after epoch, until the last step is saved or the
// rank was asked to leave.
//
//   join an epoch -> connect the collectives -> restore, or continue with the survivors' state ->
//   train
//        ^                                                                                      |
//        '------ a peer is lost, or ranks join or leave: drop open snapshots, leave the group <-'
//
// Made by run_rank(), used from the rank's thread. Owns the drivers of everything that happens
// within an epoch. After the loss of a group the rank keeps its process, data and model, and joins
// the next epoch. Any error that run() returns is final for the process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/rank/checkpoint_driver.h"
#include "trainer/rank/epoch_comm.h"
#include "trainer/rank/fault_injection.h"
#include "trainer/rank/last_checkpoint.h"
#include "trainer/rank/pace_driver.h"
#include "trainer/rank/range_migrator.h"
#include "trainer/rank/rank_state.h"
#include "trainer/rank/replan_driver.h"
#include "trainer/rank/saved_steps.h"
#include "trainer/rank/snapshot_taker.h"
#include "trainer/rank/state_migrator.h"
#include "trainer/rank/state_restorer.h"
#include "trainer/rank/step_loop.h"
#include "trainer/rank/step_reporter.h"
#include "trainer/rank/view_return.h"

namespace moetrain {

class EpochDriver {
 public:
  // `state` outlives it.
  explicit EpochDriver(RankState& state);

  // Runs until the last step is saved, or this rank has left on request.
  Status run();

 private:
  // How an epoch ended for this rank.
  enum class Ending {
    kSaved,  // the last step is durable
    kLeft,   // it left the group, and joins the next epoch
    kDrained,
  };
  Result<Ending> run_epoch();
  Result<ckpt::client::Epoch> join();
  void take_seat(const ckpt::client::Epoch& epoch);
  void log_collectives(const DeviceCollectives& collectives);
  Result<RecoveryReport> restore(const ckpt::client::Epoch& epoch);
  Status settle(EpochComm& comm, const ckpt::client::Epoch& epoch, RecoveryReport report,
                TrainingEvent& training);
  Status continue_lineage(EpochComm& comm, const ckpt::client::Epoch& epoch,
                          TrainingEvent& training);
  Result<RecoveryReport> keep_state(EpochComm& comm, const ckpt::client::Epoch& epoch);
  Status agree_on_step(EpochComm& comm);
  Status return_to_view(EpochComm& comm, const ckpt::client::Epoch& epoch, TrainingEvent& training);
  Result<Ending> train(EpochComm& comm);
  Result<Ending> save_last(EpochComm& comm);
  Result<Ending> drain(EpochComm& comm);
  Result<Relayout> hand_over(EpochComm& comm, const std::vector<bool>& stays);
  Ending leave_lost_group(EpochComm* comm, const std::string& reason);
  Ending leave_epoch(EpochComm& comm, const std::string& reason);
  Ending regroup(const std::string& reason, Relayout handed_over);

  RankState& state_;
  FaultInjection faults_;
  StepReporter reporter_;
  PaceDriver pace_;
  SavedSteps saved_;
  SnapshotTaker taker_;
  CheckpointDriver checkpoints_;
  StateRestorer restorer_;
  StateMigrator migrator_;
  RangeMigrator ranges_;
  ViewReturn view_return_;
  ReplanDriver replan_;
  StepPlacement placement_;
  StepLoop steps_;
  LastCheckpoint last_;
  std::string stopped_because_;      // why the run stops by itself; empty: it does not
  std::string logged_collectives_;   // last logged reason for GPUs without NCCL
  std::optional<uint64_t> lost_ns_;  // when the last group was lost, until the next one trains
  bool has_trained_ = false;         // this process was ready to train in some epoch
};

}  // namespace moetrain
