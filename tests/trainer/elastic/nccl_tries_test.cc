#include "trainer/elastic/nccl_tries.h"

#include <gtest/gtest.h>

namespace moetrain {
namespace {

void fail_try(NcclTries& tries, bool lost) {
  tries.begins();
  tries.epoch_opened(lost);
}

TEST(NcclTriesTest, ExhaustedAfterThreeFailuresWithoutLoss) {
  NcclTries tries;
  tries.epoch_opened(/*lost=*/false);
  for (uint32_t i = 0; i < NcclTries::kMax; ++i) {
    EXPECT_FALSE(tries.exhausted()) << i;
    fail_try(tries, /*lost=*/false);
  }
  EXPECT_TRUE(tries.exhausted());
}

TEST(NcclTriesTest, LossResetsFailureCount) {
  NcclTries tries;
  for (uint32_t i = 0; i < 3 * NcclTries::kMax; ++i) fail_try(tries, /*lost=*/i % 3 == 2);
  EXPECT_FALSE(tries.exhausted());
}

TEST(NcclTriesTest, WorkingGroupResetsFailureCount) {
  NcclTries tries;
  for (uint32_t i = 0; i < 3 * NcclTries::kMax; ++i) {
    tries.begins();
    if (i % 3 == 2) tries.worked();
    tries.epoch_opened(/*lost=*/false);
  }
  EXPECT_FALSE(tries.exhausted());
}

// The ranks did not agree on a group, or the group does not use NCCL.
TEST(NcclTriesTest, UntriedEpochsDoNotCountAsFailures) {
  NcclTries tries;
  for (uint32_t i = 0; i < 3 * NcclTries::kMax; ++i) tries.epoch_opened(/*lost=*/false);
  EXPECT_FALSE(tries.exhausted());
}

}  // namespace
}  // namespace moetrain
