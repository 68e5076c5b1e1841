// The byte ranges of a unit that each rank holds, in either mode of expert state. Pure.
//
//   dense units     every rank holds all of it
//   trainer unit    every rank holds all of it; rank 0 contributes it
//   replicated      a holder of the expert has all of the unit, other ranks have nothing
//   sharded         rank n of N has elements [n*S/N, (n+1)*S/N) of each state buffer: one range of
//                   the unit `weights`, two of the unit `optimizer` (first and second moments)
//
// The snapshot plan, restores and staging use these ranges; the unit itself stays one whole expert,
// so that a run saved in one mode can be restored in the other, on any number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/base/result.h"
#include "trainer/checkpoint/units.h"
#include "trainer/placement/ownership.h"

namespace moetrain {

using ckpt::Status;

// Bytes [offset, offset + length) of a unit.
struct UnitRange {
  uint64_t offset = 0;
  uint64_t length = 0;  // > 0
  bool operator==(const UnitRange&) const = default;
};

// The bytes of the unit that `rank` holds: ascending ranges that do not touch each other, or none.
std::vector<UnitRange> held_ranges(const StateUnit& unit, const Ownership& ownership,
                                   uint32_t rank);

// The most fragments of a snapshot that ckptd takes (kFragmentsPerSnapshotMax in ckptd/limits.h).
inline constexpr uint64_t kSnapshotFragmentsMax = 1u << 22;

// The most fragments of any snapshot of these units, by any selection of experts.
uint64_t fragments_max(const std::vector<StateUnit>& units, const Ownership& ownership);

// kInvalidArgument if some snapshot would have more than kSnapshotFragmentsMax fragments; with
// sharded state the message names the largest number of ranks that works.
Status check_fragments(const std::vector<StateUnit>& units, const Ownership& ownership);

}  // namespace moetrain
