// One run that loses ranks, and whether its results are as expected.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/kill_figures.h"
#include "bench/kill_reference.h"
#include "bench/step_run.h"
#include "trainer/placement/compute_placement.h"

namespace bench {

inline constexpr uint32_t kKilledRanks = 8;
inline constexpr uint32_t kKilledSlots = 5;  // of each of them, in each layer
inline constexpr uint32_t kKilledReplicas = 2;
inline constexpr uint32_t kKilledShardedSlots = 4;  // of each of them, where experts are sharded

struct KillArm {
  const char* name;
  const char* what;
  uint32_t victims;
  bool takes_experts;  // no survivor holds them
  bool goes_on;        // --on-loss continue
  bool hangs;          // SIGSTOP instead of SIGKILL: no process ends, no connection breaks
};
inline constexpr KillArm kKillArms[] = {
    {"one", "one of the ranks", 1, false, true, false},
    {"two", "two, whose experts all survive", 2, false, true, false},
    {"taken", "two, that take experts with them", 2, true, true, false},
    {"restart", "one, and all resume from a checkpoint", 1, false, false, false},
    {"hang", "one that hangs, found by a time-out", 1, false, true, true},
};

// The workload of all of them, and the flags that come with it.
struct KillSetup {
  StepWorkload workload;
  uint64_t kill_after = 0;  // in the middle of the step that follows this one
  uint32_t checkpoint_every = 0;
  uint32_t collective_timeout_ms = 0;
  bool sharded = false;                  // --expert-state
  moetrain::ComputePlacement placement;  // replicated: that the runs begin with
  ReferenceRun unharmed;
};

struct KillTrial {
  std::vector<uint32_t> ranks;
  KillFigures figures;
  size_t experts_taken = 0;
  // Only those came back older than the rest, and as many tokens as they had since were lost.
  bool rolled_back_exactly = false;
  // Losses of all steps against those of a run that nothing happens to but, without warning or
  // haste, the same: the ranks leave after the step that the others went on from; experts that were
  // taken go back. In that case, where nobody goes on, and where experts are sharded, it is
  // train_reference().
  double loss_difference = 0;
  bool same_bits = false;  // as train_reference()
};

// The experts (of the grid) that only these ranks hold.
std::set<uint32_t> experts_taken(const moetrain::ComputePlacement& placement,
                                 const std::vector<uint32_t>& ranks);
// All groups of `arm.victims` ranks that match `arm.takes_experts`. With sharded experts every rank
// holds a part of each, so every group matches.
std::vector<std::vector<uint32_t>> victims_of(const KillSetup& setup, const KillArm& arm);

std::vector<std::string> arm_flags(const KillSetup& setup, const KillArm& arm);

// `moment`: the part of the step that has passed when the ranks are lost.
ckpt::Result<KillTrial> run_trial(const KillSetup& setup, const KillArm& arm,
                                  const std::vector<uint32_t>& victims, double moment);

}  // namespace bench
