// The migration plan: who sends what to whom when a group changes. Pure.
//
// An item is a piece of state with one version on all its holders: an expert with its moments, or a
// dense parameter. Whoever needs one gets it from one holder; of several, the one that has the
// least to send so far, items with the fewest holders first (they have no choice). What nobody
// holds is not moved: ckptd has it.
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
  std::vector<uint32_t> wanted;   // by these ranks, ascending; those that hold it need nothing
};

struct Move {
  uint32_t item = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  bool operator==(const Move&) const = default;
};

struct MigrationPlan {
  // One round after the other, each ordered by (from, to, item). In no round does a rank send or
  // receive more than the budget, but for an item that is larger than that by itself.
  std::vector<std::vector<Move>> rounds;
  std::vector<uint32_t> lost;  // wanted, and held by nobody; ascending
  uint64_t bytes = 0;
};

// The same on every rank. `budget_bytes` is what a rank has for one round's sending or receiving.
MigrationPlan plan_migration(std::span<const MovingItem> items, uint32_t ranks,
                             uint64_t budget_bytes);

// The same placement with its ranks permuted so that little has to move: held[rank][i] says whether
// the rank holds expert i of the grid. Greedy: ranks in turn take what suits them best. What ranks
// of one failure domain hold together they hold together afterwards, in one of the same size, so
// that the same losses are survived.
ComputePlacement keep_in_place(const ComputePlacement& placement,
                               const std::vector<std::vector<bool>>& held, const RankGroup& group);

}  // namespace moetrain
