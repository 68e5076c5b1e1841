// Straggler detection: the rank that the others waited for.
#include "trainer/elastic/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetrain {
namespace {

using testing::DoubleEq;
using testing::IsEmpty;
using testing::SizeIs;

// A step of 100 ms, `own_ms` of them outside of collectives.
StepEvent step_of(double own_ms) { return {.ms = 100, .waited_ms = 100 - own_ms}; }

TEST(StragglersTest, SlowestRankHasMostOwnTime) {
  Stragglers stragglers;
  stragglers.begin(1, 3);
  const double own_ms[4][3] = {{10, 40, 20}, {10, 60, 20}, {50, 40, 30}, {10, 70, 40}};
  for (uint64_t step = 0; step < 4; ++step) {
    for (const uint32_t rank : {2u, 0u, 1u}) {
      stragglers.add(1, {.rank = rank, .step = step + 1}, step_of(own_ms[step][rank]));
    }
  }
  const auto ranks = stragglers.ranks();
  ASSERT_THAT(ranks, SizeIs(3));
  EXPECT_EQ(ranks[1].rank, 1u);
  EXPECT_EQ(ranks[1].steps, 4u);
  EXPECT_EQ(ranks[1].slowest, 3u);
  EXPECT_THAT(ranks[1].more_ms, DoubleEq((25 + 45 + 45) / 3.0));
  EXPECT_THAT(ranks[1].own_ms, DoubleEq(52.5));
  EXPECT_THAT(ranks[1].waited_ms, DoubleEq(47.5));
  EXPECT_EQ(ranks[0].slowest, 1u);
  EXPECT_THAT(ranks[0].more_ms, DoubleEq(15));
  EXPECT_EQ(ranks[2].slowest, 0u);
  EXPECT_EQ(ranks[2].more_ms, 0);
}

TEST(StragglersTest, SnapshotStallIsNotOwnTime) {
  Stragglers stragglers;
  stragglers.begin(1, 2);
  StepEvent copies = step_of(60);
  copies.stall_ms = 50;
  stragglers.add(1, {.rank = 0, .step = 1}, copies);
  stragglers.add(1, {.rank = 1, .step = 1}, step_of(20));
  EXPECT_EQ(stragglers.ranks()[0].slowest, 0u);
  EXPECT_THAT(stragglers.ranks()[0].own_ms, DoubleEq(10));
  EXPECT_EQ(stragglers.ranks()[1].slowest, 1u);
}

TEST(StragglersTest, LowestRankWinsTie) {
  Stragglers stragglers;
  stragglers.begin(1, 2);
  stragglers.add(1, {.rank = 1, .step = 1}, step_of(20));
  stragglers.add(1, {.rank = 0, .step = 1}, step_of(20));
  EXPECT_EQ(stragglers.ranks()[0].slowest, 1u);
}

TEST(StragglersTest, OnlyWholeStepsCount) {
  Stragglers stragglers;
  stragglers.add(1, {.rank = 0, .step = 1}, step_of(20));  // of no epoch that is known
  stragglers.begin(1, 2);
  stragglers.add(1, {.rank = 0, .step = 1}, step_of(20));
  EXPECT_THAT(stragglers.ranks(), IsEmpty()) << "rank 1 has not come to its end";
  stragglers.begin(2, 1);
  stragglers.add(2, {.rank = 0, .step = 1}, step_of(20));
  ASSERT_THAT(stragglers.ranks(), SizeIs(1));
  EXPECT_EQ(stragglers.ranks()[0].steps, 1u);
  EXPECT_EQ(stragglers.ranks()[0].slowest, 0u) << "alone nobody waits";
  stragglers.add(1, {.rank = 1, .step = 1}, step_of(90));  // late event of a complete step
  EXPECT_EQ(stragglers.ranks()[1].slowest, 1u);
  stragglers.begin(3, 2);
  stragglers.add(1, {.rank = 0, .step = 2}, step_of(20));
  stragglers.add(1, {.rank = 1, .step = 2}, step_of(20));
  EXPECT_EQ(stragglers.ranks()[0].steps, 2u) << "epoch 1 is long over";
  const StepEvent late;  // applied after a loss
  stragglers.add(3, {.rank = 0, .step = 3}, late);
  stragglers.add(3, {.rank = 1, .step = 3}, step_of(20));
  EXPECT_EQ(stragglers.ranks()[1].steps, 1u);
}

}  // namespace
}  // namespace moetrain
