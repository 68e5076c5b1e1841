// One run that loses ranks, and whether its results are as expected.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/common/kill_reference.h"
#include "bench/common/step_run.h"
#include "bench/research/kill_figures.h"
#include "trainer/placement/compute_placement.h"

namespace bench {

inline constexpr uint32_t kKilledRanks = 8;
inline constexpr uint32_t kKilledSlots = 5;  // per rank and layer
inline constexpr uint32_t kKilledReplicas = 2;
inline constexpr uint32_t kKilledShardedSlots = 4;  // per rank and layer, for sharded experts

struct KillArm {
  const char* name;
  const char* description;
  uint32_t victims;
  bool takes_experts;       // no survivor holds the victims' experts
  bool survivors_continue;  // --on-loss continue
  bool hangs;               // SIGSTOP instead of SIGKILL: no process ends, no connection breaks
};
inline constexpr KillArm kKillArms[] = {
    {"one", "one of the ranks", 1, false, true, false},
    {"two", "two, whose experts all survive", 2, false, true, false},
    {"taken", "two, that take experts with them", 2, true, true, false},
    {"restart", "one, and all resume from a checkpoint", 1, false, false, false},
    {"hang", "one that hangs, found by a time-out", 1, false, true, true},
};

// The workload of all arms, and the flags that belong to it.
struct KillSetup {
  StepWorkload workload;
  uint64_t kill_after = 0;  // in the middle of the step that follows this one
  uint32_t checkpoint_every = 0;
  uint32_t collective_timeout_ms = 0;
  bool sharded = false;                  // --expert-state
  moetrain::ComputePlacement placement;  // replicated experts: at the start of each run
  ReferenceRun unharmed;
};

struct KillTrial {
  std::vector<uint32_t> ranks;
  KillFigures figures;
  size_t experts_taken = 0;
  // Only the taken experts were rolled back, and exactly their tokens since then were lost.
  bool rolled_back_exactly = false;
  // Largest relative difference of the losses to those of a reference run, over all steps. There
  // the same ranks leave on request after the step at which the survivors resumed. For arms that
  // take experts, restart or hang, and for sharded experts, the reference is train_reference(), in
  // which taken experts roll back.
  double loss_difference = 0;
  bool same_bits = false;  // the losses equal train_reference() bit for bit
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
