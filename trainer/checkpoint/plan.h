// The plan of a snapshot: which rank contributes which bytes of which unit. Pure.
//
// Every rank computes the whole plan by itself and ckptd compares the hashes: ranks that disagree
// are found before a byte is believed. A replicated expert comes in equal parts from the ranks that
// hold it; of a sharded expert every rank contributes the part it owns (unit_ranges.h), so that any
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

// No snapshot of some or all units asks more bytes than this of any rank.
uint64_t largest_share(const std::vector<StateUnit>& units, const Ownership& ownership,
                       DenseSharding dense);

// Every unit's id.
std::vector<uint32_t> all_units(const std::vector<StateUnit>& units);

// The units that `rank` restores: all dense ones, the trainer unit, and the experts that it holds
// a part of.
std::vector<uint32_t> units_of_rank(const std::vector<StateUnit>& units, const Ownership& ownership,
                                    uint32_t rank);

// Of all ranks: the sum, and how evenly it is shared.
ShareSummary bytes_by_rank(const std::vector<ckpt_fragment>& plan, uint32_t ranks);

// Bytes that `rank` contributes.
uint64_t bytes_of_rank(const std::vector<ckpt_fragment>& plan, uint32_t rank);

}  // namespace moetrain
