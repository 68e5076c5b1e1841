// Properties of every placement policy, and refused requests.
#include "trainer/placement/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "trainer/placement/judge.h"

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PlacementRequest request_of(std::vector<std::vector<uint64_t>> loads, uint32_t ranks,
                            uint32_t slots, uint32_t least) {
  return {
      .loads = std::move(loads), .ranks = ranks, .slots_per_rank = slots, .replicas_min = least};
}

std::vector<std::vector<uint64_t>> random_loads(std::mt19937& random, uint32_t layers,
                                                uint32_t experts) {
  std::vector<std::vector<uint64_t>> loads(layers);
  for (auto& layer : loads) {
    const bool skewed = random() % 2 == 0;
    for (uint32_t e = 0; e < experts; ++e) {
      layer.push_back(random() % 4 == 0 ? 0 : random() % (skewed && e % 5 == 0 ? 100'000 : 1'000));
    }
  }
  return loads;
}

// Random domains of any size; no domain is empty.
std::vector<uint32_t> random_domains(std::mt19937& random, uint32_t ranks) {
  const uint32_t domains = 1 + random() % ranks;
  std::vector<uint32_t> domain_of_rank(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    domain_of_rank[rank] = rank < domains ? rank : random() % domains;
  }
  for (uint32_t rank = ranks - 1; rank > 0; --rank) {
    std::swap(domain_of_rank[rank], domain_of_rank[random() % (rank + 1)]);
  }
  return domain_of_rank;
}

TEST(PolicyTest, NamesAreParsed) {
  for (const PolicyName policy : kPolicies) EXPECT_EQ(*parse_policy(policy_name(policy)), policy);
  EXPECT_THAT(parse_policy("mro").error().message,
              HasSubstr("'mro': one of static, eplb, flexmoe, lazarus, laer, frontier"));
}

TEST(PolicyTest, FillsAllSlotsAndServesEveryExpert) {
  const uint32_t seed = 31;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 60; ++round) {
    const uint32_t ranks = 1 + random() % 24;
    const uint32_t slots = 1 + random() % 5;
    const uint32_t experts = 1 + random() % (ranks * slots);
    PlacementRequest request =
        request_of(random_loads(random, 1 + random() % 3, experts), ranks, slots, 3);
    if (round % 2 == 0) request.domain_of_rank = random_domains(random, ranks);
    request.replicas_min = replicas_possible(request);
    if (request.replicas_min == 0) continue;
    for (const PolicyName policy : kPolicies) {
      SCOPED_TRACE(testing::Message() << "round " << round << " " << policy_name(policy));
      const auto layers = plan_placement(policy, request);
      ASSERT_TRUE(layers.ok()) << layers.error().message;
      EXPECT_EQ(*layers, *plan_placement(policy, request)) << "the same request";
      const auto judgement = judge_balance(*layers, request);
      ASSERT_TRUE(judgement.ok()) << judgement.error().message;
      EXPECT_GE(judgement->max_over_mean, 1 - 1e-9);
      for (uint32_t layer = 0; layer < request.layers(); ++layer) {
        for (const auto& rank : (*layers)[layer]) {
          EXPECT_LE(rank.size(), slots);
          if (policy != PolicyName::kStatic) {
            EXPECT_EQ(rank.size(), slots);
          }
        }
        if (policy == PolicyName::kLazarus || policy == PolicyName::kFrontier) {
          EXPECT_GE(judgement->layers[layer].domains_min, request.replicas_min);
        }
      }
    }
  }
}

// The last survivor holds every expert, with just enough slots or more.
TEST(PolicyTest, PlansForOneRank) {
  for (uint32_t slots = 1; slots <= 6; ++slots) {
    for (uint32_t experts = 1; experts <= slots; ++experts) {
      std::vector<uint64_t> loads(experts, 1);
      loads.front() = 5;
      PlacementRequest request = request_of({loads, loads}, 1, slots, 1);
      for (const bool named : {false, true}) {
        if (named) request.domain_of_rank = {0};
        for (const PolicyName policy : kPolicies) {
          SCOPED_TRACE(testing::Message() << policy_name(policy) << ": " << experts << " experts, "
                                          << slots << " slots, domain named: " << named);
          const auto layers = plan_placement(policy, request);
          ASSERT_TRUE(layers.ok()) << layers.error().message;
          const auto judgement = judge(*layers, request);
          ASSERT_TRUE(judgement.ok()) << judgement.error().message;
          EXPECT_NEAR(judgement->max_over_mean_worst, 1, 1e-9);
          EXPECT_TRUE(judgement->recovery.empty()) << "nobody would be left";
        }
      }
    }
  }
}

TEST(PolicyTest, LayerWithoutTokensIsPlannedAsEven) {
  const PlacementRequest none = request_of({{0, 0, 0, 0}}, 4, 2, 1);
  const PlacementRequest even = request_of({{1, 1, 1, 1}}, 4, 2, 1);
  for (const PolicyName policy : kPolicies) {
    EXPECT_EQ(*plan_placement(policy, none), *plan_placement(policy, even));
    EXPECT_NEAR(judge(*plan_placement(policy, none), none)->max_over_mean, 1, 1e-9);
  }
}

TEST(PolicyTest, StaticRepeatsBlocksOfExperts) {
  const auto layers = plan_placement(PolicyName::kStatic, request_of({{9, 1, 1, 1}}, 4, 2, 1));
  EXPECT_THAT((*layers)[0], ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(0, 1),
                                        ElementsAre(2, 3)));
}

TEST(PolicyTest, RefusesInvalidRequest) {
  const auto refusal = [](const PlacementRequest& request) {
    const auto layers = plan_placement(PolicyName::kFrontier, request);
    EXPECT_EQ(layers.ok() ? ckpt::ErrorCode::kIo : layers.error().code,
              ckpt::ErrorCode::kInvalidArgument);
    return layers.ok() ? "accepted" : layers.error().message;
  };
  PlacementRequest good = request_of({{4, 3, 2}, {1, 2, 3}}, 4, 2, 2);
  EXPECT_TRUE(plan_placement(PolicyName::kFrontier, good).ok());
  const auto with = [&](auto change) {
    PlacementRequest request = good;
    change(request);
    return refusal(request);
  };
  EXPECT_THAT(with([](auto& r) { r.replicas_min = 3; }),
              HasSubstr("4 ranks of 2 slots are 8 slots; 3 experts of at least 3 replicas need 9"));
  EXPECT_THAT(with([](auto& r) { r.replicas_min = 0; }), HasSubstr("at least 1 is needed"));
  EXPECT_THAT(with([](auto& r) { r.ranks = 0; }), HasSubstr("0 ranks"));
  EXPECT_THAT(with([](auto& r) { r.slots_per_rank = 0; }), HasSubstr("0 slots on each"));
  EXPECT_THAT(with([](auto& r) { r.slots_per_rank = UINT32_MAX; }), HasSubstr("at most"));
  EXPECT_THAT(with([](auto& r) { r.loads.clear(); }), HasSubstr("loads of no layer"));
  EXPECT_THAT(with([](auto& r) { r.loads[1].pop_back(); }),
              HasSubstr("layer 1 has loads of 2 experts, layer 0 of 3"));
  EXPECT_THAT(with([](auto& r) { r.loads[1][0] = UINT64_MAX; }),
              HasSubstr("layer 1 has more than"));
  EXPECT_THAT(with([](auto& r) {
                r.ranks = 65'536;
                r.loads = {std::vector<uint64_t>(65'536)};
              }),
              HasSubstr("65536 experts on 65536 ranks"));
  EXPECT_THAT(with([](auto& r) { r.failures = 4; }),
              HasSubstr("4 failures of 4 failure domains: nobody would be left"));
  EXPECT_THAT(with([](auto& r) { r.domain_of_rank = {0, 1, 0}; }), HasSubstr("domains of 3 ranks"));
  EXPECT_THAT(with([](auto& r) {
                r.domain_of_rank = {0, 2, 0, 2};
              }),
              HasSubstr("no rank is in domain 1"));
  EXPECT_THAT(with([](auto& r) {
                r.domain_of_rank = {0, 0, 0, 0};
              }),
              HasSubstr("2 distinct failure domains; 1 domains of these sizes can give 1"));
  EXPECT_THAT(with([](auto& r) { r.nodes = 3; }), HasSubstr("3 nodes do not divide 4 ranks"));
  EXPECT_THAT(with([](auto& r) { r.expert_groups = 2; }), HasSubstr("2 expert groups"));
  EXPECT_THAT(with([](auto& r) {
                r.current = {{{0}, {1}, {2}, {0}}};
              }),
              HasSubstr("the current placement has 1 layers"));
  EXPECT_THAT(with([](auto& r) { r.recovery_wanted = {{2, 1.5}}; }), HasSubstr("probability 1.5"));
  EXPECT_THAT(with([](auto& r) { r.recovery_wanted = {{0, 0.5}}; }), HasSubstr("of 0 failures"));
}

TEST(PolicyTest, EffectiveReplicasFollowRanksDomainsAndSlots) {
  PlacementRequest request = request_of({std::vector<uint64_t>(8, 1)}, 8, 3, 4);
  EXPECT_EQ(replicas_possible(request), 3u);  // 24 slots
  request.domain_of_rank = {0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_EQ(replicas_possible(request), 2u);  // two nodes
  // A node of one rank can hold three of the eight experts: the others have no second domain.
  request.domain_of_rank = {0, 0, 0, 0, 0, 0, 0, 1};
  EXPECT_EQ(replicas_possible(request), 1u);
}

}  // namespace
}  // namespace moetrain
