// Constructions of the Lazarus planner: replica counts in, one layer's slots out. Values only.
#pragma once

#include <span>
#include <vector>

#include "trainer/placement/lazarus.h"

namespace moetrain {

struct Overlap {
  LayerSlots slots;
  // Every group got as many ranks as its least replicated expert has replicas: the placement is
  // optimal for every number of lost ranks.
  bool whole = true;
};

// Maximum Rank Overlap as published. With domains, neighbours in its order of ranks are of
// different domains as far as possible. The counts sum to ranks * slots_per_rank, for all of these.
Overlap overlap_placement(std::span<const uint32_t> replicas, const LazarusOptions& options);

// Replicas one after the other around the ranks.
LayerSlots ring_placement(std::span<const uint32_t> replicas, const LazarusOptions& options);

// Those with most replicas first, each on the emptiest ranks that do not hold it.
LayerSlots spread_placement(std::span<const uint32_t> replicas, const LazarusOptions& options);

// First replicas_min of every expert on the domains with most room, then the rest. By Gale and
// Ryser this gives all of them distinct domains whenever any placement does.
LayerSlots promised_placement(std::span<const uint32_t> replicas, const LazarusOptions& options);

// How many holders are missing, over all experts, to replicas_min distinct domains (or to all that
// there are, or to as many as the expert has replicas).
uint64_t short_of_domains(const LayerSlots& slots, std::span<const uint32_t> replicas,
                          const LazarusOptions& options);

// Exchanges slots until no holder is missing, or no exchange helps: true, or false.
bool repair_domains(LayerSlots& slots, std::span<const uint32_t> replicas,
                    const LazarusOptions& options);

}  // namespace moetrain
