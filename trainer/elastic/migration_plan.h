// The migration plan: which rank sends which item to which rank when a group changes. Pure.
//
// An item is a piece of state with one version on all its holders: an expert with its moments, or a
// dense parameter. A rank that needs an item gets it from one holder: the one with the least to
// send so far. Items with the fewest holders are planned first, because they have no choice. An
// item without a holder is not moved: ckptd restores it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/placement/compute_placement.h"
#include "trainer/placement/domains.h"

namespace moetrain {

struct MovingItem {
  uint64_t bytes = 0;
  std::vector<uint32_t> holders;  // ascending
  std::vector<uint32_t> wanted;   // ranks that want it, ascending; holders need nothing
};

struct Move {
  uint32_t item = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  bool operator==(const Move&) const = default;
};

struct MigrationPlan {
  // Rounds, executed in order, each ordered by (from, to, item). In no round does a rank send or
  // receive more than the budget, except for an item that is larger by itself.
  std::vector<std::vector<Move>> rounds;
  std::vector<uint32_t> lost;  // wanted items without a holder; ascending
  uint64_t bytes = 0;
};

// The same on every rank. `budget_bytes`: most bytes that a rank sends, or receives, in a round.
MigrationPlan plan_migration(std::span<const MovingItem> items, uint32_t ranks,
                             uint64_t budget_bytes);

// The same placement with its ranks permuted so that little has to move. held[rank][i] is true if
// the rank holds expert i of the grid. Greedy: each rank in turn takes the place that moves least.
// Places of ranks in one failure domain stay together in a domain of the same size, so that the
// placement survives the same losses.
ComputePlacement keep_in_place(const ComputePlacement& placement,
                               const std::vector<std::vector<bool>>& held, const RankGroup& group);

}  // namespace moetrain
