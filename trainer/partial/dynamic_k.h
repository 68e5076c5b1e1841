// Dynamic K: how many experts per snapshot keep the lost tokens within a budget.
//
// PEC doubles K after a recovery that left PLT above the budget (3.75 %, measured for restarts).
// That reacts when the budget is overspent already. Here, from the first recovery that lost
// something on, K is the smallest, of what was asked for times a power of two, with which the next
// one, if it came now, is expected to stay within what is left. The first one comes with the K that
// was asked for: nobody knows yet what it will take.
//
// What a recovery loses has two parts. What a version is behind the last snapshot goes with N/K - 1
// (the mean age of a version, in snapshots), so the last loss tells what the next one would be.
// What came since the last snapshot only a rollback loses, where survivors go on, and no K changes
// it: a shorter interval does (pacer.h). Once the budget is spent K is N. All parts of PLT are
// proportions of all tokens so far, and fall as the run goes on: so does K, back to what was asked
// for.
//
// The budget is held against restarts and rollbacks together.
#pragma once

#include <cstdint>

namespace moetrain {

inline constexpr double kPltBudgetDefault = 0.0375;

struct Recovery {
  uint32_t k = 1;        // of N experts, when it came; 1 .. experts
  uint32_t experts = 1;  // N
  double plt = 0;        // accumulated, this recovery included
  double plt_of_it = 0;  // of the tokens that its versions were behind, in all tokens so far
  double plt_since = 0;  // the same of those that came after the last snapshot: with any K
};

// What a recovery like this one would lose with `k` experts per snapshot.
double expected_plt(const Recovery& recovery, uint32_t k);

// K for the snapshots that follow: `asked` (1 .. experts) times a power of two, or all experts.
uint32_t k_within(double budget, uint32_t asked, const Recovery& recovery);

}  // namespace moetrain
