// The placement of Lazarus (arXiv 2407.04656): Maximum Rank Overlap over the replica counts of
// Eq. 1, repaired.
//
// MRO groups experts of similar replica counts and gives each group ranks of its own, so that a
// failure of few ranks hits as few groups as possible. Where the slots of a rank do not divide the
// experts, the published construction may put an expert on fewer distinct ranks than promised and
// is not always the best. So it is one of three candidates (a ring, and an even spread, are the
// others); each is improved by exchanging slots, and the best is kept.
//
// Better is: fewer holders short of min(replicas_min, ranks) distinct ranks; then more survived
// sets of 1 dead rank, then of 2, and so on (recovery.h).
#pragma once

#include <cstdint>
#include <span>

#include "trainer/placement/layer_slots.h"

namespace moetrain {

struct LazarusOptions {
  uint32_t ranks = 0;           // 1 .. kExactRanksMax
  uint32_t slots_per_rank = 0;  // >= 1
  uint32_t replicas_min = 1;    // f: distinct ranks for every expert, as far as there are ranks
};

// For one layer with these tokens per expert. Deterministic. kInvalidArgument if the slots cannot
// hold replicas_min of every expert, or options are out of range.
Result<LayerSlots> lazarus_layer(std::span<const uint64_t> loads, const LazarusOptions& options);

// The same for given replica counts, which sum to ranks * slots_per_rank.
LayerSlots place_replicas(std::span<const uint32_t> replicas, const LazarusOptions& options);

}  // namespace moetrain
