#include "trainer/elastic/nccl_tries.h"

#include <gtest/gtest.h>

namespace moetrain {
namespace {

void try_in_vain(NcclTries& tries, bool lost) {
  tries.begins();
  tries.epoch_opened(lost);
}

TEST(NcclTriesTest, InVainAfterThreeFailuresWithoutLoss) {
  NcclTries tries;
  tries.epoch_opened(/*lost=*/false);
  for (uint32_t i = 0; i < NcclTries::kMax; ++i) {
    EXPECT_FALSE(tries.in_vain()) << i;
    try_in_vain(tries, /*lost=*/false);
  }
  EXPECT_TRUE(tries.in_vain());
}

TEST(NcclTriesTest, LossResetsFailureCount) {
  NcclTries tries;
  for (uint32_t i = 0; i < 3 * NcclTries::kMax; ++i) try_in_vain(tries, /*lost=*/i % 3 == 2);
  EXPECT_FALSE(tries.in_vain());
}

TEST(NcclTriesTest, WorkingGroupResetsFailureCount) {
  NcclTries tries;
  for (uint32_t i = 0; i < 3 * NcclTries::kMax; ++i) {
    tries.begins();
    if (i % 3 == 2) tries.worked();
    tries.epoch_opened(/*lost=*/false);
  }
  EXPECT_FALSE(tries.in_vain());
}

// The group could not even be agreed on, or was one without NCCL.
TEST(NcclTriesTest, UntriedEpochsDoNotCountAsFailures) {
  NcclTries tries;
  for (uint32_t i = 0; i < 3 * NcclTries::kMax; ++i) tries.epoch_opened(/*lost=*/false);
  EXPECT_FALSE(tries.in_vain());
}

}  // namespace
}  // namespace moetrain
