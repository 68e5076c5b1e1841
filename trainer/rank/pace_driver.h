// PaceDriver: how often checkpoints are taken and how many experts each has. Brings the ranks'
// pacers to agree, applies their choice, and reports it.
//
// Owned by EpochDriver, used from the rank's thread. The Pacer itself is part of the rank's state:
// a checkpoint saves it, and a joining rank takes it over. After a lost group, begin_run(),
// resume() or membership_changed() sets it up for the next epoch.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "trainer/rank/epoch_comm.h"
#include "trainer/rank/rank_state.h"

namespace moetrain {

class PaceDriver {
 public:
  explicit PaceDriver(RankState& state) : state_(state) {}

  // The run starts from the seed.
  void begin_run();
  // A collective. The run resumes from a checkpoint: takes over its pace, and the largest count of
  // failures that any rank knows. Keeps K as dynamic K has just raised it.
  struct Restored {
    PaceState pace;           // as the checkpoint has it
    uint32_t k = 0;           // experts of each layer, as the checkpoint has it
    int64_t lost_tokens = 0;  // by this resume
  };
  Status resume(EpochComm& comm, const Restored& restored);
  // Survivors continue with other members, which all have the pace of one of them
  // (LiveState::agree). All ranks draw the same conclusions from the losses of the change, without
  // a collective.
  struct Change {
    bool lost_experts = false;  // some experts had no live holder
    int64_t lost_tokens = 0;
    uint32_t k_before = 0;            // experts of each layer in a checkpoint, before the change
    std::optional<uint64_t> lost_ns;  // when the last group was lost, by monotonic_ns()
  };
  void membership_changed(const Change& change);

  // The rank trains from now on, until left_training().
  void trains() { trained_ = true; }
  void left_training() { left_training_ = std::chrono::steady_clock::now(); }

  // A collective at steps that all ranks know: they agree on the largest of each measure, and
  // choose the pace anew. At other steps it only restores the full interval once PLT is within the
  // budget.
  Status decide(EpochComm& comm);

  // Reports the pace in force; only rank 0 does.
  void report_pace() const;
  // Fills in what all ranks have agreed on as an epoch begins, so that the events show it.
  void fill_agreed(TrainingEvent& training) const;

 private:
  Pacer::ResumeCause resume_cause() const;
  CheckpointPace in_force() const;
  bool overspends() const;
  void follow_pacer();

  RankState& state_;
  bool trained_ = false;  // in an earlier epoch of this process
  std::chrono::steady_clock::time_point left_training_;
};

}  // namespace moetrain
