// A routing trace replayed under partial snapshots: what a failure would lose, for every moment it
// may come at and every set of ranks it may take.
//
// Nothing is drawn at random: expectations are sums over all cases, in integers.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/research/routing_trace.h"
#include "trainer/partial/selector.h"
#include "trainer/placement/lazarus.h"

namespace bench {

// The placement of every layer, planned every `replan` samples from the counts of the samples since
// the previous plan. The first plan assumes equal experts.
struct TracePlacements {
  uint32_t ranks = 0;
  uint32_t replan = 1;
  std::vector<std::vector<moetrain::LayerSlots>> periods;  // [sample / replan][layer]

  const std::vector<moetrain::LayerSlots>& at(size_t sample) const {
    return periods[sample / replan];
  }
};
ckpt::Result<TracePlacements> plan_placements(const RoutingTrace& trace,
                                              const moetrain::LazarusOptions& options,
                                              uint32_t replan);

struct ReplayOptions {
  moetrain::SelectionOptions selection;  // checked
  uint32_t interval = 1;                 // samples between snapshots
  uint32_t dead_max = 4;                 // a failure takes 1 .. dead_max ranks
};

// Failures of `dead` ranks, one case for each sample and each set of ranks. The failure comes after
// the sample's steps and before the snapshot that is due then; experts without a live replica go
// back to their newest version, everything else goes on.
struct FailureCases {
  uint32_t dead = 0;
  uint64_t cases = 0;
  uint64_t zero_loss_cases = 0;
  uint64_t lost_tokens = 0;  // summed over all cases and layers
  double expected_plt = 0;   // of one failure; over the tokens of the whole trace
};

struct Replay {
  std::vector<FailureCases> failures;  // [dead - 1]
  // A restart of all ranks instead, one case for each sample: everything rewinds to the newest
  // snapshot, and the experts to versions as old as they are.
  uint64_t restart_lost_tokens = 0;
  bool overflowed = false;  // a sum is beyond 64 bits: nothing here is right
  double restart_plt = 0;
  uint64_t gap_max = 0;  // snapshots from one save of an expert to its next, at most
};

Replay replay(const RoutingTrace& trace, const TracePlacements& placements,
              const ReplayOptions& options);

}  // namespace bench
