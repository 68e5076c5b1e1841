// Decisions to migrate experts without a membership change.
#include "trainer/elastic/replanner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetrain {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

constexpr uint64_t kExpertBytes = 1000;

// Two ranks, one layer of four experts.
ComputePlacement of_slots(LayerSlots slots) { return *make_placement({std::move(slots)}, 4, 2); }

// The busiest rank has 90 of 100 tokens, then 60: expert 0 alone has 60.
const ComputePlacement kUneven = of_slots({{0, 1}, {2, 3}});
const ComputePlacement kEven = of_slots({{0}, {1, 2, 3}});
const std::vector<int64_t> kRouted = {60, 30, 5, 5};

class ReplannerTest : public testing::Test {
 protected:
  // Decides ten steps after begin(); both ranks measured the same.
  ReplanChoice choose(const ReplanOptions& options, int64_t ns_per_token, uint64_t moved_bytes = 0,
                      double moved_ms = 0) {
    Replanner replanner(options);
    replanner.begin(10, std::vector<int64_t>(4, 7));
    for (int step = 0; step < 10; ++step) replanner.computed(5, 5 * ns_per_token);
    replanner.moved(moved_bytes, moved_ms);
    std::vector<int64_t> measured = replanner.measured();
    for (int64_t& value : measured) value *= 2;  // the sum of both ranks
    return replanner.decide(20, measured, kUneven, kEven, kRouted);
  }
  const ReplanOptions options_{.every = 10, .steps = 1000, .expert_bytes = kExpertBytes};
};

TEST_F(ReplannerTest, IsDueAfterIntervalSinceBegin) {
  Replanner replanner({.every = 10, .steps = 30});
  replanner.begin(7, {});
  EXPECT_FALSE(replanner.due(16));
  EXPECT_TRUE(replanner.due(17));
  replanner.begin(17, {});
  EXPECT_FALSE(replanner.due(20)) << "an epoch that began meanwhile counts from its own begin";
  EXPECT_TRUE(replanner.due(27));
  EXPECT_FALSE(replanner.due(30)) << "after the last step nothing is to be gained";
  EXPECT_FALSE(Replanner({.every = 0, .steps = 30}).due(20));
}

TEST_F(ReplannerTest, CountsTheTokensSinceItBegan) {
  Replanner replanner(options_);
  const std::vector<int64_t> now = {10, 20, 30, 40};
  replanner.begin(0, {});
  EXPECT_EQ(replanner.window(now), now) << "before the first step there were none";
  replanner.begin(3, std::vector<int64_t>{1, 2, 3, 40});
  EXPECT_THAT(replanner.window(now), ElementsAre(9, 18, 27, 0));
}

TEST_F(ReplannerTest, PredictsGainFromBusiestRankPerLayer) {
  const ReplanChoice choice = choose(options_, 1'000'000);
  EXPECT_THAT(choice.before.busiest_tokens, DoubleEq(90));
  EXPECT_THAT(choice.after.busiest_tokens, DoubleEq(60));
  EXPECT_THAT(choice.before.max_over_mean, DoubleEq(1.8));
  EXPECT_THAT(choice.after.max_over_mean, DoubleEq(1.2));
  EXPECT_EQ(choice.bytes, kExpertBytes) << "expert 1 comes to rank 1; rank 0 only forgets it";
  EXPECT_THAT(choice.gain_ms, DoubleEq(30)) << "30 tokens less, of 1 ms each, in as many steps";
}

TEST_F(ReplannerTest, MovesOnlyIfGainExceedsCost) {
  // 1000 bytes in 2 ms, measured.
  EXPECT_TRUE(choose(options_, 70'000, 500, 1).moves) << "2.1 ms to gain";
  EXPECT_FALSE(choose(options_, 60'000, 500, 1).moves) << "1.8 ms";
  EXPECT_THAT(choose(options_, 60'000, 500, 1).cost_ms, DoubleEq(2));
  EXPECT_FALSE(choose(options_, 0).moves) << "nothing was measured yet";
  ReplanOptions better = options_;
  better.if_better = true;
  EXPECT_TRUE(choose(better, 60'000, 500, 1).moves) << "whatever it costs";
}

TEST_F(ReplannerTest, GainCountsOnlyRemainingSteps) {
  ReplanOptions short_run = options_;
  short_run.steps = 25;
  EXPECT_THAT(choose(short_run, 1'000'000).gain_ms, DoubleEq(15)) << "5 steps are left of 10";
}

TEST_F(ReplannerTest, KeepsPlacementWithoutGain) {
  ReplanOptions better = options_;
  better.if_better = true;
  Replanner replanner(better);
  replanner.begin(0, {});
  replanner.computed(100, 1'000'000);
  for (const ComputePlacement& next : {kUneven, of_slots({{0, 1, 2}, {3}})}) {
    EXPECT_FALSE(replanner.decide(10, replanner.measured(), kUneven, next, kRouted).moves);
  }
}

TEST_F(ReplannerTest, MeasuresRateOfFastestMigration) {
  Replanner replanner(options_);
  replanner.moved(1000, 4);
  const std::vector<int64_t> first = replanner.measured();
  replanner.moved(1000, 9);
  EXPECT_EQ(replanner.measured(), first) << "a slower one says nothing of the way";
  replanner.moved(0, 1);
  EXPECT_EQ(replanner.measured(), first) << "nor one of nothing";
  replanner.moved(2000, 4);
  EXPECT_NE(replanner.measured(), first);
}

TEST(BalanceTest, AccountsForReplicasAndWorstLayer) {
  const ComputePlacement placement =
      *make_placement({{{0, 1}, {0, 2}, {3}}, {{0, 1}, {2}, {3}}}, 4, 3);
  // Layer 0: 10 + 10, 10 + 10, 10. Layer 1: 30, 10, 10.
  const Balance balance =
      balance_of(placement, std::vector<int64_t>{20, 10, 10, 10, 20, 10, 10, 10});
  EXPECT_THAT(balance.busiest_tokens, DoubleEq(50));
  EXPECT_THAT(balance.max_over_mean, DoubleEq(50 / (100 / 3.0)));
  EXPECT_EQ(balance.worst_layer, 1u);
  const Balance of_nothing = balance_of(placement, std::vector<int64_t>(8));
  EXPECT_EQ(of_nothing.max_over_mean, 1) << "no token, no imbalance";
}

TEST(BalanceTest, CountsExpertsThatRanksLack) {
  const ComputePlacement from = *make_placement({{{0, 1}, {2, 3}}}, 4, 2);
  EXPECT_EQ(experts_to_move(from, from), 0u);
  EXPECT_EQ(experts_to_move(from, *make_placement({{{1, 0}, {3, 2}}}, 4, 2)), 0u);
  EXPECT_EQ(experts_to_move(from, *make_placement({{{0, 0, 2}, {2, 3, 1}}}, 4, 2)), 2u);
}

}  // namespace
}  // namespace moetrain
