// `frontier` compared with all other policies on random requests: no other plan may be better
// balanced and at least as survivable.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "trainer/placement/frontier.h"
#include "trainer/placement/judge.h"
#include "trainer/placement/others.h"

namespace moetrain {
namespace {

constexpr double kRoundings = 1e-9;

enum class LoadKind { kZipf, kOneHot, kUniform, kLogNormal, kCount };

std::vector<uint64_t> loads_of(LoadKind kind, uint32_t experts, std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::vector<uint64_t> loads(experts, 7);
  for (uint32_t e = 0; e < experts; ++e) {
    if (kind == LoadKind::kZipf) loads[e] = 1'000'000 / (e + 1);
    if (kind == LoadKind::kOneHot) loads[e] = e == 0 ? 1'000 : 0;
    if (kind == LoadKind::kLogNormal) {
      loads[e] = static_cast<uint64_t>(1'000 * std::exp(normal(random)));
    }
  }
  std::shuffle(loads.begin(), loads.end(), random);
  return loads;
}

PlacementRequest any_request(std::mt19937& random, uint32_t ranks_max) {
  PlacementRequest request{.ranks = 1 + static_cast<uint32_t>(random() % ranks_max),
                           .slots_per_rank = 1 + static_cast<uint32_t>(random() % 5),
                           .replicas_min = 1 + static_cast<uint32_t>(random() % 3)};
  const uint32_t experts = 1 + random() % std::min(24u, request.slots());
  const auto kind = static_cast<LoadKind>(random() % static_cast<uint32_t>(LoadKind::kCount));
  const size_t layers = 1 + random() % 3;
  request.loads.reserve(layers);
  while (request.loads.size() < layers) request.loads.push_back(loads_of(kind, experts, random));
  if (random() % 4 == 0) {
    const uint32_t domains = 1 + random() % request.ranks;
    for (uint32_t rank = 0; rank < request.ranks; ++rank) {
      request.domain_of_rank.push_back(rank < domains ? rank : random() % domains);
    }
  }
  request.replicas_min = std::max(1u, replicas_possible(request));
  return request;
}

TEST(FrontierOthersTest, IsNeverWorseThanLazarus) {
  const uint32_t seed = 29;
  std::mt19937 random(seed);
  for (int round = 0; round < 150; ++round) {
    const PlacementRequest request = any_request(random, round % 10 == 0 ? 40 : 8);
    SCOPED_TRACE(testing::Message()
                 << "seed " << seed << ", round " << round << ": " << request.ranks << " ranks of "
                 << request.slots_per_rank << " slots, " << request.experts() << " experts");
    const auto ours = plan_placement(PolicyName::kFrontier, request);
    const auto lazarus = plan_placement(PolicyName::kLazarus, request);
    ASSERT_TRUE(ours.ok() && lazarus.ok());
    EXPECT_LE(mean_balance(*ours, request), mean_balance(*lazarus, request) + kRoundings);
    if (request.domains() > 20) continue;  // estimated, where it is not the same
    const Judgement safe = *judge(*ours, request);
    const Judgement reference = *judge(*lazarus, request);
    for (const uint32_t failed : failures_asked(request)) {
      EXPECT_GE(safe.recovery[failed - 1].probability,
                reference.recovery[failed - 1].probability - kRoundings)
          << failed << " failures";
    }
  }
}

// True if `other` is worse in nothing and better in something.
bool dominates(const Judgement& other, const FrontierPoint& point,
               const std::vector<uint32_t>& failures) {
  if (other.max_over_mean > point.max_over_mean + kRoundings) return false;
  bool better = other.max_over_mean < point.max_over_mean - kRoundings;
  for (const uint32_t failed : failures) {
    const double gain = other.recovery[failed - 1].probability - point.recovery[failed - 1];
    if (gain < -kRoundings) return false;
    better = better || gain > kRoundings;
  }
  return better;
}

TEST(FrontierOthersTest, NoPolicyDominatesFrontierPoint) {
  const uint32_t seed = 31;
  std::mt19937 random(seed);
  int compared = 0;
  for (int round = 0; round < 60; ++round) {
    const PlacementRequest request = any_request(random, 7);
    const auto points = frontier_points(request);
    ASSERT_TRUE(points.ok()) << points.error().message;
    for (const PolicyName policy : kPolicies) {
      const auto layers = plan_placement(policy, request);
      ASSERT_TRUE(layers.ok()) << layers.error().message;
      const Judgement other = *judge(*layers, request);
      const bool promised = std::ranges::all_of(other.layers, [&](const LayerJudgement& layer) {
        return layer.domains_min >= request.replicas_min;
      });
      if (!promised) continue;
      ++compared;
      for (const FrontierPoint& point : *points) {
        EXPECT_FALSE(dominates(other, point, failures_asked(request)))
            << "seed " << seed << ", round " << round << ": " << policy_name(policy) << " with "
            << other.max_over_mean << " against " << point.max_over_mean;
      }
    }
  }
  EXPECT_GT(compared, 200);
}

// Slots that `static` leaves empty are filled at no cost.
TEST(FrontierOthersTest, FillsSlotsThatStaticLeavesEmpty) {
  PlacementRequest request{.loads = {{9, 4, 2, 7, 1}, {0, 0, 0, 5, 0}},
                           .ranks = 6,
                           .slots_per_rank = 3,
                           .replicas_min = 2};
  const auto check = [&] {
    const auto full = promised_layers(PolicyName::kStatic, request);
    ASSERT_TRUE(full.ok() && full->has_value());
    const Judgement judgement = *judge(**full, request);
    const Judgement before = *judge(*plan_placement(PolicyName::kStatic, request), request);
    EXPECT_LE(judgement.max_over_mean, before.max_over_mean + kRoundings);
    for (size_t i = 0; i < before.recovery.size(); ++i) {
      EXPECT_GE(judgement.recovery[i].probability, before.recovery[i].probability);
    }
    for (const LayerSlots& layer : **full) {
      for (const auto& rank : layer) EXPECT_EQ(rank.size(), request.slots_per_rank);
    }
  };
  check();
  // Ranks that `static` leaves idle.
  request = {.loads = {{3, 5}}, .ranks = 3, .slots_per_rank = 1, .replicas_min = 1};
  check();
}

TEST(FrontierOthersTest, DetectsUnreachableRecoveryEarly) {
  const PlacementRequest request{.loads = {{1, 1}}, .ranks = 4, .slots_per_rank = 1};
  const std::vector<LayerSlots> alone = {{{0}, {1}, {1}, {1}}};
  EXPECT_TRUE(may_reach(alone, request, {{1, 0.75}, {2, 0.5}}));
  EXPECT_FALSE(may_reach(alone, request, {{1, 0.76}}));
  EXPECT_FALSE(may_reach(alone, request, {{2, 0.51}}));
  const std::vector<LayerSlots> pairs = {{{0}, {0}, {1}, {1}}};
  EXPECT_TRUE(may_reach(pairs, request, {{2, 1}})) << "who has two is not looked at";
}

}  // namespace
}  // namespace moetrain
