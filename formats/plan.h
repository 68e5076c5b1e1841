// Plan: the units of one snapshot and which rank contributes which byte ranges (fragments).
#pragma once

#include <vector>

#include "formats/base/hash.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/unit.h"

namespace ckpt {

// A byte range of a unit.
struct UnitRange {
  UnitId unit = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  auto operator<=>(const UnitRange&) const = default;
};

// A range that `rank` contributes.
struct PlannedFragment {
  Rank rank = 0;
  UnitRange range;
  auto operator<=>(const PlannedFragment&) const = default;
};

struct Plan {
  std::vector<UnitId> units;               // ascending, no repeats: what the snapshot holds
  std::vector<PlannedFragment> fragments;  // any order
  std::vector<UnitId> memory_units;        // those of `units` that stay in memory
};

// The hash that all members must agree on. Depends on the plan's contents, not on their order.
base::Hash128 plan_hash(Plan plan);

// Checks that `ranges` cover every unit of `units` exactly: no hole, no overlap, nothing else.
// `specs` is indexed by UnitId. `ranges` may be in any order. The error names the unit and the
// range: "unit layers.0.attention: no fragment covers bytes [4096, 8192)".
Status check_exact_coverage(const std::vector<UnitId>& units, std::vector<UnitRange> ranges,
                            const std::vector<UnitSpec>& specs);

}  // namespace ckpt
