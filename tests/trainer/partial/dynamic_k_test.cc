#include "trainer/partial/dynamic_k.h"

#include <gtest/gtest.h>

#include <random>

namespace moetrain {
namespace {

TEST(DynamicKTest, StaysWhileTheNextRecoveryFitsTheBudget) {
  EXPECT_EQ(k_within(0.0375, 2, {.k = 2, .experts = 32, .plt = 0.01, .plt_of_it = 0.01}), 2u);
  EXPECT_EQ(k_within(0.0375, 2, {.k = 2, .experts = 32, .plt = 0, .plt_of_it = 0}), 2u);
}

TEST(DynamicKTest, DoublesUntilRecoveryFitsBudget) {
  // 2.5 % lost with K=2 of 32 (N/K-1 = 15): 1.17 % are expected with K=4 (7): 3.67 % in all.
  EXPECT_EQ(k_within(0.0375, 2, {.k = 2, .experts = 32, .plt = 0.025, .plt_of_it = 0.025}), 4u);
  // 3.5 %: K=16 (1) is expected to lose 0.23 %.
  EXPECT_EQ(k_within(0.0375, 2, {.k = 2, .experts = 32, .plt = 0.035, .plt_of_it = 0.035}), 16u);
}

TEST(DynamicKTest, SavesEverythingOnceTheBudgetIsSpent) {
  EXPECT_EQ(k_within(0.0375, 2, {.k = 2, .experts = 32, .plt = 0.04, .plt_of_it = 0.001}), 32u);
  EXPECT_EQ(k_within(0.0375, 3, {.k = 3, .experts = 10, .plt = 0.04, .plt_of_it = 0.04}), 10u);
  EXPECT_EQ(k_within(0.0375, 10, {.k = 10, .experts = 10, .plt = 0.5, .plt_of_it = 0}), 10u);
}

// 1 % behind the last snapshot with K=2 of 8 (3), 2 % after it: that stays with any K.
TEST(DynamicKTest, NoKReducesLossSinceLastSnapshot) {
  const Recovery recovery{.k = 2, .experts = 8, .plt = 0, .plt_of_it = 0.01, .plt_since = 0.02};
  EXPECT_DOUBLE_EQ(expected_plt(recovery, 2), 0.03);
  EXPECT_DOUBLE_EQ(expected_plt(recovery, 4), 0.01 / 3 + 0.02);
  EXPECT_DOUBLE_EQ(expected_plt(recovery, 8), 0.02);
  EXPECT_EQ(k_within(0.0375, 2, recovery), 2u);
  EXPECT_EQ(k_within(0.025, 2, recovery), 4u);
  EXPECT_EQ(k_within(0.022, 2, recovery), 8u);
}

TEST(DynamicKTest, KeepsTheExpectationWithinTheBudget) {
  const uint32_t seed = 3;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> part(0, 0.1);
  for (int round = 0; round < 2000; ++round) {
    Recovery recovery{.experts = 1 + static_cast<uint32_t>(random() % 64)};
    recovery.k = 1 + random() % recovery.experts;
    recovery.plt_of_it = recovery.k == recovery.experts ? 0 : part(random);
    recovery.plt_since = random() % 2 == 0 ? 0 : part(random);
    recovery.plt = recovery.plt_of_it + recovery.plt_since + part(random);
    const double budget = part(random);
    const uint32_t asked = 1 + random() % recovery.k;
    const uint32_t k = k_within(budget, asked, recovery);
    EXPECT_GE(k, asked);
    EXPECT_LE(k, recovery.experts);
    if (k < recovery.experts) {
      EXPECT_LE(recovery.plt + expected_plt(recovery, k), budget);
    }
    if (k > asked) {
      EXPECT_GT(recovery.plt + expected_plt(recovery, (k + 1) / 2), budget)
          << "no more than needed";
    }
  }
}

// The same loss as a falling share of all tokens.
TEST(DynamicKTest, FallsToRequestedKAsTokensGrow) {
  uint32_t before = 32;
  for (const double all : {1.0, 1.4, 2.0, 4.0, 8.0, 20.0}) {
    const uint32_t k =
        k_within(0.0375, 2, {.k = 2, .experts = 32, .plt = 0.04 / all, .plt_of_it = 0.04 / all});
    EXPECT_LE(k, before);
    before = k;
  }
  EXPECT_EQ(before, 2u);
}

}  // namespace
}  // namespace moetrain
