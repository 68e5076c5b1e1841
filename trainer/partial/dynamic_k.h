// Dynamic K: the number of experts per snapshot that keeps lost tokens within a budget.
//
// PEC doubles K after a recovery that left PLT above the budget (3.75 %, measured for restarts):
// only once the budget is overspent. Here K changes from the first recovery with a loss on. It is
// the smallest K, of the requested one times a power of two, for which the next recovery, if it
// came now, is expected to stay within the rest of the budget. The first recovery happens with
// the requested K: its loss cannot be predicted.
//
// The loss of a recovery has two parts. The lag of versions behind the last snapshot scales with
// N/K - 1 (the mean age of a version, in snapshots), so the last loss predicts the next one.
// Tokens since the last snapshot are lost only by a rollback, if survivors continue, and at any K:
// a shorter interval reduces them (pacer.h). Once the budget is spent, K is N. All parts of PLT are
// fractions of all tokens so far, and fall as the run continues: so does K, back to the requested
// value.
//
// The budget covers restarts and rollbacks together.
#pragma once

#include <cstdint>

namespace moetrain {

inline constexpr double kPltBudgetDefault = 0.0375;

struct Recovery {
  uint32_t k = 1;        // of N experts, at the recovery; 1 .. experts
  uint32_t experts = 1;  // N
  double plt = 0;        // accumulated, this recovery included
  double plt_of_it = 0;  // fraction of all tokens so far by which its versions lagged
  double plt_since = 0;  // the same for tokens after the last snapshot: at any K
};

// Expected PLT of a recovery like this one, with `k` experts per snapshot.
double expected_plt(const Recovery& recovery, uint32_t k);

// K for the following snapshots: `asked` (1 .. experts) times a power of two, or all experts.
uint32_t k_within(double budget, uint32_t asked, const Recovery& recovery);

}  // namespace moetrain
