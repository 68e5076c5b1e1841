#include "trainer/partial/dynamic_k.h"

#include <algorithm>

#include "formats/base/assert.h"

namespace moetrain {

namespace {

// Mean age of a version, in pairs of snapshots.
double mean_age(uint32_t experts, uint32_t k) {
  return static_cast<double>(experts) / static_cast<double>(k) - 1;
}

}  // namespace

double expected_plt(const Recovery& recovery, uint32_t k) {
  if (k >= recovery.experts || recovery.k >= recovery.experts) return recovery.plt_since;
  return recovery.plt_since + recovery.plt_of_it * mean_age(recovery.experts, k) /
                                  mean_age(recovery.experts, recovery.k);
}

uint32_t k_within(double budget, uint32_t asked, const Recovery& recovery) {
  CKPT_ASSERT(recovery.k >= 1 && recovery.k <= recovery.experts);
  CKPT_ASSERT(asked >= 1 && asked <= recovery.experts);
  uint32_t k = asked;
  while (k < recovery.experts && recovery.plt + expected_plt(recovery, k) > budget) {
    k = k > recovery.experts / 2 ? recovery.experts : 2 * k;
  }
  return k;
}

}  // namespace moetrain
