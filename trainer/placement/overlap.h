// Constructions of the Lazarus planner: replica counts in, one layer's slots out. Values only.
#pragma once

#include <span>
#include <vector>

#include "trainer/placement/lazarus.h"

namespace moetrain {

struct Overlap {
  LayerSlots slots;
  // True if every group got as many ranks as its least replicated expert has replicas: the
  // placement is optimal for every number of lost ranks.
  bool whole = true;
};

// Maximum Rank Overlap as published. With domains, neighbours in its order of ranks are of
// different domains as far as possible. The counts sum to ranks * slots_per_rank, for all of these.
Overlap overlap_placement(std::span<const uint32_t> replicas, const LazarusOptions& options);

// Replicas one after the other around the ranks.
LayerSlots ring_placement(std::span<const uint32_t> replicas, const LazarusOptions& options);

// Experts with most replicas first, each on the emptiest ranks without it.
LayerSlots spread_placement(std::span<const uint32_t> replicas, const LazarusOptions& options);

// First replicas_min of every expert on the domains with most room, then the rest. By Gale and
// Ryser this gives all experts distinct domains whenever any placement does.
LayerSlots promised_placement(std::span<const uint32_t> replicas, const LazarusOptions& options);

// Number of missing holders, over all experts, to replicas_min distinct domains (or to all that
// exist, or to the expert's replica count).
uint64_t short_of_domains(const LayerSlots& slots, std::span<const uint32_t> replicas,
                          const LazarusOptions& options);

// Exchanges slots until no holder is missing (true), or no exchange helps (false).
bool repair_domains(LayerSlots& slots, std::span<const uint32_t> replicas,
                    const LazarusOptions& options);

}  // namespace moetrain
