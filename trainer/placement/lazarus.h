// The placement of Lazarus (arXiv 2407.04656): Maximum Rank Overlap over the replica counts of
// Eq. 1, repaired, and aligned over layers.
//
// MRO groups experts of similar replica counts and gives each group its own ranks, so that a
// failure of few ranks hits as few groups as possible. If the last group gets fewer ranks than
// its experts have replicas, the published construction may put an expert on fewer distinct ranks
// than promised and is not always the best. Then it is one of three candidates (a ring, and an even
// spread, are the others); each is improved by exchanging slots, and the best is kept.
//
// Domains of equal size are placed as ranks that have all their slots, and their replicas are
// dealt out to their ranks. Domains of different sizes have no construction: they are searched.
//
// Better means: fewer holders short of replicas_min distinct domains; then more survived sets of
// `failures` lost domains, then of 1, of 2, and so on (recovery.h). Above kExactRanksMax domains
// nothing can be counted: MRO is repaired to keep its promise, no more. There MRO's own order
// aligns the layers: every layer's least replicated group, which is lost first, has the first
// ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/placement/layer_slots.h"
#include "trainer/placement/policy.h"

namespace moetrain {

// Work limit of the search of one layer, in probes (fatal_sets.h): about 2 ms.
inline constexpr uint64_t kLazarusProbes = 2'000'000;

struct LazarusOptions {
  uint32_t ranks = 0;           // >= 1
  uint32_t slots_per_rank = 0;  // >= 1
  uint32_t replicas_min = 1;    // f: distinct domains for every expert, if there are as many
  uint32_t failures = 0;        // this number of lost domains counts first; 0: no preference
  std::vector<uint32_t> domain_of_rank;     // 0 .. D - 1; empty: every rank is a domain
  bool search = true;                       // false: only keep the promise
  uint64_t search_probes = kLazarusProbes;  // if too few to rate a placement: no search

  uint32_t domains() const;
  uint32_t domain(uint32_t rank) const {
    return domain_of_rank.empty() ? rank : domain_of_rank[rank];
  }
};

// Options for one layer; all layers of the request share the work limit of its number of ranks.
LazarusOptions lazarus_options(const PlacementRequest& request, bool search);

// For one layer with these tokens per expert. Deterministic. kInvalidArgument if the slots cannot
// hold replicas_min of every expert, or options are out of range.
Result<LayerSlots> lazarus_layer(std::span<const uint64_t> loads, const LazarusOptions& options);

// The same for given replica counts, which sum to ranks * slots_per_rank.
LayerSlots place_replicas(std::span<const uint32_t> replicas, const LazarusOptions& options);

// All layers of a valid request: each as above, then ranks are renamed layer by layer if that
// makes the layers together survive what each survives alone. Without `search`: overlap as
// published, repaired; quick at any size.
Result<std::vector<LayerSlots>> plan_lazarus(const PlacementRequest& request, bool search = true);

}  // namespace moetrain
