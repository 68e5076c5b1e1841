#include "trainer/placement/frontier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/trainer/placement/frontier_requests.h"
#include "trainer/placement/judge.h"

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(FrontierTest, IsAsSafeAsLazarusAndBalanced) {
  const PlacementRequest request = shuffled_zipf(24, 32, 16, 6);
  const Judgement ours = judged(PolicyName::kFrontier, request);
  const Judgement overlap = judged(PolicyName::kLazarus, request);
  for (const uint32_t failed : {1u, 2u, 4u}) {
    EXPECT_GE(ours.recovery[failed - 1].probability,
              overlap.recovery[failed - 1].probability - 1e-12)
        << failed;
  }
  EXPECT_LT(ours.max_over_mean, 1.10);
  EXPECT_LT(ours.max_over_mean_worst, 1.25);
  EXPECT_GT(overlap.max_over_mean, ours.max_over_mean + 0.1);
}

// Any shape: a few ranks or many, with nodes or without, whole groups of experts or not.
TEST(FrontierTest, IsAsSafeAsLazarusForAnyShape) {
  const uint32_t seed = 11;
  std::mt19937 random(seed);
  int compared = 0;
  for (int round = 0; round < 60; ++round) {
    PlacementRequest request{.ranks = 5 + static_cast<uint32_t>(random() % 11),
                             .slots_per_rank = 2 + static_cast<uint32_t>(random() % 4),
                             .replicas_min = 1 + static_cast<uint32_t>(random() % 3)};
    const uint32_t experts_max = std::min(40u, request.slots() / request.replicas_min);
    request.loads.assign(1 + random() % 5, std::vector<uint64_t>(2 + random() % (experts_max - 1)));
    for (auto& loads : request.loads) {
      for (uint64_t& load : loads) load = 1 + random() % (random() % 4 == 0 ? 9'000 : 300);
    }
    if (round % 4 == 0) {
      const uint32_t domains = 2 + random() % (request.ranks - 1);
      for (uint32_t rank = 0; rank < request.ranks; ++rank) {
        request.domain_of_rank.push_back(rank < domains ? rank : random() % domains);
      }
    }
    request.replicas_min = replicas_possible(request);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    const Judgement ours = judged(PolicyName::kFrontier, request);
    const Judgement overlap = judged(PolicyName::kLazarus, request);
    for (const uint32_t failed : failures_asked(request)) {
      ++compared;
      EXPECT_GE(ours.recovery[failed - 1].probability,
                overlap.recovery[failed - 1].probability - 1e-9)
          << failed << " failures";
    }
  }
  EXPECT_GT(compared, 120);
}

// Lowest maximum over mean that the number of slots allows, if every expert has `replicas_min`
// replicas or more.
double balance_bound(const PlacementRequest& request, const std::vector<uint64_t>& loads,
                     uint32_t replicas_min) {
  const double total = static_cast<double>(std::reduce(loads.begin(), loads.end()));
  double least = 1;
  double most = request.ranks;
  for (int step = 0; step < 50; ++step) {
    const double balance = (least + most) / 2;
    double slots = 0;
    for (const uint64_t load : loads) {
      const double share = balance * total / request.ranks;
      slots += std::max<double>(replicas_min, std::ceil(static_cast<double>(load) / share));
    }
    (slots <= request.slots() ? most : least) = balance;
  }
  return most;
}

// A few experts that get half of the tokens or nearly all, on top of Zipf loads.
std::vector<uint64_t> hot_loads(uint32_t experts, uint32_t hot, std::mt19937& random) {
  std::vector<uint64_t> loads(experts);
  const double others = 2e6 / hot / static_cast<double>(1u << (random() % 10));
  for (uint32_t e = 0; e < experts; ++e) {
    loads[e] = e < hot ? 1'000'000 + random() % 1'000'000
                       : 1 + static_cast<uint64_t>(others / (e - hot + 1));
  }
  std::shuffle(loads.begin(), loads.end(), random);
  return loads;
}

// Replicas of hot experts need slots on ranks that the other experts would fill up.
TEST(FrontierTest, BalancesExpertsThatNeedManyReplicas) {
  struct Shape {
    uint32_t ranks, slots_per_rank, experts;
  };
  for (const Shape& shape : {Shape{16, 6, 32}, Shape{64, 4, 64}, Shape{10, 6, 16}}) {
    PlacementRequest request{
        .ranks = shape.ranks, .slots_per_rank = shape.slots_per_rank, .replicas_min = 2};
    const uint32_t seed = 3;
    std::mt19937 random(seed);
    request.loads.reserve(16);
    for (uint32_t layer = 0; layer < 16; ++layer) {
      request.loads.push_back(hot_loads(shape.experts, 1 + layer % 4, random));
    }
    const Judgement judgement = judged(PolicyName::kFrontier, request);
    for (uint32_t layer = 0; layer < 16; ++layer) {
      const LayerJudgement& of_layer = judgement.layers[layer];
      const double bound = balance_bound(request, request.loads[layer], of_layer.domains_min);
      EXPECT_LE(of_layer.max_over_mean, 1.25 * bound)
          << shape.ranks << " ranks, seed " << seed << ", layer " << layer;
    }
  }
}

// Thousands of replicas of one expert, of which each move changes all shares.
TEST(FrontierTest, PlansFewExpertsInManySlots) {
  PlacementRequest request{
      .loads = {{3, 1}, {1, 1}}, .ranks = 512, .slots_per_rank = 64, .replicas_min = 2};
  const Judgement judgement = judged(PolicyName::kFrontier, request);
  EXPECT_LT(judgement.max_over_mean_worst, 1.02);
  EXPECT_EQ(judgement.recovery[3].probability, 1);
}

TEST(FrontierTest, PlansLargestNumberOfRanks) {
  PlacementRequest request{.ranks = kPlacementRanksMax, .slots_per_rank = 1, .replicas_min = 1};
  request.loads = {{5, 3, 2}};
  const auto placed = plan_placement(PolicyName::kFrontier, request);
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  ASSERT_EQ(placed->size(), 1u);
  EXPECT_EQ(placed->front().size(), kPlacementRanksMax);
}

TEST(FrontierTest, MeetsRecoveryTargetOrReportsMaximum) {
  PlacementRequest request = shuffled_zipf(4, 32, 16, 6);
  request.recovery_wanted = {{2, 0.98}, {4, 0.85}};
  const Judgement safe = judged(PolicyName::kFrontier, request);
  EXPECT_GE(safe.recovery[1].probability, 0.98);
  EXPECT_GE(safe.recovery[3].probability, 0.85);
  request.recovery_wanted = {{1, 0}};
  const Judgement free = judged(PolicyName::kFrontier, request);
  EXPECT_LT(free.max_over_mean, safe.max_over_mean + 0.005);
  EXPECT_GE(free.layers[0].domains_min, 2u);
  request.recovery_wanted = {{8, 0.99}};
  const auto impossible = plan_placement(PolicyName::kFrontier, request);
  ASSERT_FALSE(impossible.ok());
  EXPECT_EQ(impossible.error().code, ckpt::ErrorCode::kFailedPrecondition);
  EXPECT_THAT(impossible.error().message, HasSubstr("8 failures: 0.9900 wanted, at most 0."));
}

TEST(FrontierTest, CountsLostNodesNotRanks) {
  PlacementRequest request = shuffled_zipf(6, 16, 16, 4);
  for (uint32_t rank = 0; rank < 16; ++rank) request.domain_of_rank.push_back(rank / 2);
  const Judgement ours = judged(PolicyName::kFrontier, request);
  ASSERT_EQ(ours.recovery.size(), 7u);
  EXPECT_EQ(ours.recovery[0].probability, 1) << "any node may go";
  EXPECT_GE(ours.recovery[1].probability,
            judged(PolicyName::kLazarus, request).recovery[1].probability - 1e-12);
  EXPECT_LT(ours.max_over_mean, 1.15);
}

TEST(FrontierTest, PointsTradeBalanceForRecovery) {
  const PlacementRequest request = shuffled_zipf(3, 32, 16, 6);
  const auto points = frontier_points(request);
  ASSERT_TRUE(points.ok()) << points.error().message;
  ASSERT_GE(points->size(), 2u);
  for (size_t i = 1; i < points->size(); ++i) {
    const FrontierPoint& before = (*points)[i - 1];
    const FrontierPoint& point = (*points)[i];
    EXPECT_GE(point.max_over_mean, before.max_over_mean);
    EXPECT_GT(point.recovery[0] + point.recovery[1] + point.recovery[3],
              before.recovery[0] + before.recovery[1] + before.recovery[3]);
  }
}

TEST(FrontierTest, FailuresAskedArePossible) {
  PlacementRequest request = shuffled_zipf(1, 2, 3, 2);
  EXPECT_THAT(failures_asked(request), ElementsAre(1, 2));
  request.failures = 2;
  EXPECT_THAT(failures_asked(request), ElementsAre(2));
}

TEST(JudgeTest, RatesBalanceRecoveryAndMoves) {
  PlacementRequest request{.loads = {{60, 20, 20}}, .ranks = 3, .slots_per_rank = 2};
  request.current = {{{0, 1}, {0, 2}, {}}};
  const std::vector<LayerSlots> layers = {{{0, 1}, {2, 0}, {0, 0}}};
  const auto judgement = judge(layers, request);
  ASSERT_TRUE(judgement.ok()) << judgement.error().message;
  EXPECT_THAT(judgement->layers[0].replicas, ElementsAre(4, 1, 1));
  EXPECT_THAT(judgement->layers[0].rank_loads, ElementsAre(35, 35, 30));
  EXPECT_NEAR(judgement->max_over_mean, 35 / (100.0 / 3), 1e-12);
  EXPECT_EQ(judgement->layers[0].domains_min, 1u);
  EXPECT_EQ(judgement->replicas_to_move, 1u) << "expert 0 to rank 2, once";
  EXPECT_NEAR(judgement->recovery[0].probability, 1.0 / 3, 1e-12);
  EXPECT_EQ(judgement->recovery[1].probability, 0);
  EXPECT_THAT(judge({{{0, 1}, {2, 0}}}, request).error().message, HasSubstr("2 ranks, not 3"));
  EXPECT_THAT(judge({{{0, 1}, {0}, {0}}}, request).error().message, HasSubstr("expert 2"));
}

}  // namespace
}  // namespace moetrain
