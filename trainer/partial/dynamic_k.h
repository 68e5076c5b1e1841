// Dynamic K: how many experts per snapshot keep the lost tokens within a budget.
//
// PEC doubles K after a recovery that left PLT above the budget (3.75 %, measured for restarts).
// That reacts when the budget is overspent already. Here K doubles until the next recovery, if it
// comes, is expected to stay within what is left. What a recovery loses goes with N/K - 1 (the mean
// age of a version, in snapshots), so the last one's loss tells what the next one's would be. Once
// the budget is spent K becomes N: only full snapshots lose nothing in a restart. K never falls.
#pragma once

#include <cstdint>

namespace moetrain {

inline constexpr double kPltBudgetDefault = 0.0375;

struct Recovery {
  uint32_t k = 1;        // of N experts, when it came; 1 .. experts
  uint32_t experts = 1;  // N
  double plt = 0;        // accumulated, this recovery included
  double plt_of_it = 0;  // of this recovery alone
};

// What a recovery like this one would lose with `k` experts per snapshot. 0 with all of them.
double expected_plt(const Recovery& recovery, uint32_t k);

// K for the snapshots that follow: recovery.k times a power of two, or recovery.experts.
uint32_t k_after(const Recovery& recovery, double budget);

}  // namespace moetrain
