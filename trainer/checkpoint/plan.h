// The plan of a snapshot: which rank contributes which bytes of which unit. Pure.
//
// Every rank computes the whole plan by itself and ckptd compares the hashes: ranks that disagree
// are found before a byte is believed. An expert comes from the rank that owns it. Dense state is
// the same on all ranks, so each contributes an equal range of every dense unit, and the time a
// snapshot blocks falls with the number of ranks. The trainer unit comes from rank 0.
#pragma once

#include <ckpt/ckpt.h>

#include <vector>

#include "trainer/checkpoint/units.h"
#include "trainer/parallel/expert_placement.h"

namespace moetrain {

// Ranges of dense units are cut at multiples of this many bytes.
inline constexpr uint64_t kDenseCutBytes = 64;

// Fragments of all ranks for a full snapshot, ordered by unit and offset; they cover every unit
// exactly once. The placement is valid and of the units' model.
std::vector<ckpt_fragment> snapshot_plan(const std::vector<StateUnit>& units,
                                         const ExpertPlacement& placement);

// The units that `rank` restores: all dense ones, the trainer unit, and its own experts.
std::vector<uint32_t> units_of_rank(const std::vector<StateUnit>& units,
                                    const ExpertPlacement& placement, uint32_t rank);

// Bytes that `rank` contributes.
uint64_t bytes_of_rank(const std::vector<ckpt_fragment>& plan, uint32_t rank);

}  // namespace moetrain
