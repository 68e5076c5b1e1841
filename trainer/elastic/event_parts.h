// Parts that several kinds of events have.
#pragma once

#include <cstdint>
#include <vector>

namespace moetrain {

// Sender, time and place in the run: every event has these.
struct EventHeader {
  uint32_t rank = 0;     // number of the process, which stays when ranks of an epoch are renumbered
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC, the same for all processes of a machine
  uint64_t epoch = 0;    // 0: not given for this kind
  uint64_t step = 0;     // completed step of the event; 0: not given for this kind
  bool operator==(const EventHeader&) const = default;
};

// State restored from checkpoints, and the tokens lost by that.
struct RestoredState {
  uint64_t bytes_memory = 0;          // read from ckptd's memory
  uint64_t bytes_disk = 0;            // read from ckptd's disk
  std::vector<uint32_t> stale_units;  // ids of units that came back older than the step
  int64_t lost_tokens = 0;            // all ranks: updates that stale experts miss
  uint64_t experts_from_seed = 0;     // all ranks: lost experts that no checkpoint has
  bool operator==(const RestoredState&) const = default;
};

// Experts that changed their ranks, and the lost tokens of the run so far.
struct Relayout {
  uint64_t bytes_moved = 0;   // between all ranks
  double plan_ms = 0;         // to agree on the step and the placement
  double migrate_ms = 0;      // then, until the state is in place
  uint64_t memory_bytes = 0;  // sharded: that the rank's expert tensors took meanwhile (recut.h)
  uint64_t memory_bound = 0;  // that they may take
  double plt = 0;             // proportion of lost tokens, 0 to 1
  double plt_rollback = 0;    // part of `plt` that came from lost experts
  std::vector<int64_t> lost;  // tokens lost so far, by ExpertGrid index; empty: none
  bool operator==(const Relayout&) const = default;
};

// How often checkpoints are taken, and how much of each layer they have.
struct CheckpointPace {
  uint64_t checkpoint_every = 0;        // steps from one checkpoint to the next; 0: only the last
  uint32_t experts_per_checkpoint = 0;  // experts of each layer that are written
  uint32_t experts_per_snapshot = 0;    // these and the ones that stay in memory
  bool operator==(const CheckpointPace&) const = default;
};

// Membership.

}  // namespace moetrain
