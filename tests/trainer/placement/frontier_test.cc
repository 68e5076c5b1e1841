#include "trainer/placement/frontier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "trainer/placement/families.h"
#include "trainer/placement/judge.h"

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Layers of Zipf loads, experts shuffled.
PlacementRequest zipf_request(uint32_t layers, uint32_t experts, uint32_t ranks, uint32_t slots) {
  PlacementRequest request{.ranks = ranks, .slots_per_rank = slots, .replicas_min = 2};
  std::mt19937 random(5);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    auto& loads = request.loads.emplace_back(experts);
    for (uint32_t e = 0; e < experts; ++e) {
      loads[e] = static_cast<uint64_t>(1e6 / std::pow(e + 1, 0.4 + 0.1 * (layer % 10)));
    }
    for (uint32_t e = experts - 1; e > 0; --e) std::swap(loads[e], loads[random() % (e + 1)]);
  }
  return request;
}

Judgement judged(PolicyName policy, const PlacementRequest& request) {
  const auto layers = plan_placement(policy, request);
  EXPECT_TRUE(layers.ok()) << layers.error().message;
  return *judge(*layers, request);
}

TEST(FrontierTest, IsAsSafeAsLazarusAndBalanced) {
  const PlacementRequest request = zipf_request(24, 32, 16, 6);
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
TEST(FrontierTest, IsAsSafeAsLazarusWhateverIsAsked) {
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

// Thousands of replicas of one expert, of which each move changes all shares.
TEST(FrontierTest, PlansFewExpertsInManySlots) {
  PlacementRequest request{
      .loads = {{3, 1}, {1, 1}}, .ranks = 512, .slots_per_rank = 64, .replicas_min = 2};
  const Judgement judgement = judged(PolicyName::kFrontier, request);
  EXPECT_LT(judgement.max_over_mean_worst, 1.02);
  EXPECT_EQ(judgement.recovery[3].probability, 1);
}

TEST(FrontierTest, ReachesWhatIsWantedOrSaysWhatItCan) {
  PlacementRequest request = zipf_request(4, 32, 16, 6);
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
  PlacementRequest request = zipf_request(6, 16, 16, 4);
  for (uint32_t rank = 0; rank < 16; ++rank) request.domain_of_rank.push_back(rank / 2);
  const Judgement ours = judged(PolicyName::kFrontier, request);
  ASSERT_EQ(ours.recovery.size(), 7u);
  EXPECT_EQ(ours.recovery[0].probability, 1) << "any node may go";
  EXPECT_GE(ours.recovery[1].probability,
            judged(PolicyName::kLazarus, request).recovery[1].probability - 1e-12);
  EXPECT_LT(ours.max_over_mean, 1.15);
}

TEST(FrontierTest, PointsTradeBalanceForRecovery) {
  const PlacementRequest request = zipf_request(3, 32, 16, 6);
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

// What a family promises holds of every plan within it, for all layers together.
TEST(FrontierTest, FamiliesKeepTheirPromise) {
  const PlacementRequest request = zipf_request(3, 20, 12, 4);
  int built = 0;
  for (const RatedFamily& rated : candidate_families(request, failures_asked(request))) {
    std::vector<LayerSlots> layers;
    for (const auto& loads : request.loads) {
      const std::vector<double> doubles(loads.begin(), loads.end());
      LayerSearch search(request, rated.family, doubles);
      if (!search.build()) break;
      int64_t work = 100'000;
      search.improve(work, 1.0);
      std::mt19937 random(1);
      search.kick(random);
      search.improve(work, 1.0);
      layers.push_back(search.slots());
      double most = 0;
      const auto of_rank = rank_loads(search.slots(), loads);
      for (const double load : of_rank) most = std::max(most, load);
      double total = 0;
      for (const uint64_t load : loads) total += static_cast<double>(load);
      EXPECT_NEAR(search.max_over_mean(), most / (total / 12), 1e-6) << "kept up to date";
    }
    if (layers.size() < request.layers()) continue;
    ++built;
    const auto judgement = judge(layers, request);
    ASSERT_TRUE(judgement.ok());
    for (const RecoveryAt& at : judgement->recovery) {
      EXPECT_GE(at.probability, rated.recovery[at.failed - 1] - 1e-12);
    }
  }
  EXPECT_GE(built, 5);
}

TEST(FrontierTest, AsksForFailuresThatCanBe) {
  PlacementRequest request = zipf_request(1, 2, 3, 2);
  EXPECT_THAT(failures_asked(request), ElementsAre(1, 2));
  request.failures = 2;
  EXPECT_THAT(failures_asked(request), ElementsAre(2));
}

TEST(JudgeTest, SaysWhatAPlacementIsWorth) {
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
