// The plan of a snapshot: the bytes that each rank contributes to each unit. Pure.
//
// Every rank computes the whole plan by itself and ckptd compares the hashes: a disagreement is
// found before any byte is accepted. A replicated expert comes in equal parts from the ranks that
// hold it. For a sharded expert, every rank contributes its own part (unit_ranges.h), so any
// choice of experts is balanced. Dense state is the same on all ranks, so they share it
// (trainer/partial/sharding.h), and the time a snapshot blocks falls with the number of ranks. The
// trainer unit comes from rank 0.
#pragma once

#include <ckpt/ckpt.h>

#include <vector>

#include "trainer/checkpoint/units.h"
#include "trainer/partial/sharding.h"
#include "trainer/placement/ownership.h"

namespace moetrain {

// Fragments of all ranks for a snapshot of the units `unit_ids`, ordered by unit and offset; they
// cover each of them exactly once. The ownership is of the units' model.
std::vector<ckpt_fragment> snapshot_plan(const std::vector<StateUnit>& units,
                                         const std::vector<uint32_t>& unit_ids,
                                         const Ownership& ownership, DenseSharding dense);

// Upper bound of the bytes that any rank contributes to a snapshot of some or all units.
uint64_t largest_share(const std::vector<StateUnit>& units, const Ownership& ownership,
                       DenseSharding dense);

// Every unit's id.
std::vector<uint32_t> all_units(const std::vector<StateUnit>& units);

// The units that `rank` restores: all dense units, the trainer unit, and the experts of which it
// holds a part.
std::vector<uint32_t> units_of_rank(const std::vector<StateUnit>& units, const Ownership& ownership,
                                    uint32_t rank);

// Sum of the ranks' bytes, and their balance.
ShareSummary bytes_by_rank(const std::vector<ckpt_fragment>& plan, uint32_t ranks);

// Bytes that `rank` contributes.
uint64_t bytes_of_rank(const std::vector<ckpt_fragment>& plan, uint32_t rank);

}  // namespace moetrain
