// The placement of Lazarus (arXiv 2407.04656): Maximum Rank Overlap over the replica counts of
// Eq. 1, repaired, and aligned over layers.
//
// MRO groups experts of similar replica counts and gives each group ranks of its own, so that a
// failure of few ranks hits as few groups as possible. Where the last group gets fewer ranks than
// its experts have replicas, the published construction may put an expert on fewer distinct ranks
// than promised and is not always the best. Then it is one of three candidates (a ring, and an even
// spread, are the others); each is improved by exchanging slots, and the best is kept.
//
// Domains of as many ranks each are placed as ranks that have all their slots, and what they hold
// is dealt out to their ranks. Domains of different sizes have no construction: they are searched.
//
// Better is: fewer holders short of replicas_min distinct domains; then more survived sets of as
// many lost domains as `failures` says, then of 1, of 2, and so on (recovery.h). Above
// kExactRanksMax domains nothing can be counted: MRO is repaired to keep its promise, no more. What
// holds layers together there is MRO's own order: every layer's least replicated group, which is
// lost first, has the first ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/placement/layer_slots.h"
#include "trainer/placement/policy.h"

namespace moetrain {

// What the search of one layer may take, in looks (fatal_sets.h): about 2 ms.
inline constexpr uint64_t kLazarusLooks = 2'000'000;

struct LazarusOptions {
  uint32_t ranks = 0;           // >= 1
  uint32_t slots_per_rank = 0;  // >= 1
  uint32_t replicas_min = 1;    // f: distinct domains for every expert, as far as there are any
  uint32_t failures = 0;        // this many lost domains come first; 0: no number does
  std::vector<uint32_t> domain_of_rank;   // 0 .. D - 1; empty: every rank is one
  bool search = true;                     // false: keep the promise, and look no further
  uint64_t search_looks = kLazarusLooks;  // where that is too few to rate a placement: no search

  uint32_t domains() const;
  uint32_t domain(uint32_t rank) const {
    return domain_of_rank.empty() ? rank : domain_of_rank[rank];
  }
};

// All layers of the request share what a plan of so many ranks may take.
LazarusOptions lazarus_options(const PlacementRequest& request, bool search);

// For one layer with these tokens per expert. Deterministic. kInvalidArgument if the slots cannot
// hold replicas_min of every expert, or options are out of range.
Result<LayerSlots> lazarus_layer(std::span<const uint64_t> loads, const LazarusOptions& options);

// The same for given replica counts, which sum to ranks * slots_per_rank.
LayerSlots place_replicas(std::span<const uint32_t> replicas, const LazarusOptions& options);

// All layers of a valid request: each as above, then ranks are renamed layer by layer where that
// makes the layers survive together what each survives alone. Without `search`: overlap as
// published, repaired; quick at any size.
Result<std::vector<LayerSlots>> plan_lazarus(const PlacementRequest& request, bool search = true);

}  // namespace moetrain
