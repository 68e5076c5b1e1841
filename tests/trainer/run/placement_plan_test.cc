// What a run begins with: placements planned for it, and routing made uneven for benches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "trainer/model/router_skew.h"
#include "trainer/parallel/planned_placement.h"
#include "trainer/train_config.h"

namespace moetrain {
namespace {

using testing::HasSubstr;

ModelConfig shape(uint32_t layers, uint32_t experts) {
  ModelConfig config;
  config.layers = layers;
  config.experts = experts;
  return config;
}

std::vector<size_t> replica_counts(const ExpertPlacement& placement, uint32_t layer) {
  std::vector<size_t> counts;
  for (const auto& slots : slots_of_experts(placement, layer)) counts.push_back(slots.size());
  return counts;
}

TEST(PlannedPlacementTest, StaticWithoutSlotsIsOneOfEach) {
  const auto placement = plan_experts({}, shape(3, 8), 3, {});
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(*placement, *static_placement(3, 8, 3));
  EXPECT_THAT(plan_experts({}, shape(1, 4), 5, {}).error().message,
              HasSubstr("5 ranks for 4 experts"));
  EXPECT_FALSE(plan_experts({}, shape(1, 4), 0, {}).ok());
}

TEST(PlannedPlacementTest, LazarusFollowsTheLoadsAndKeepsItsPromise) {
  const std::vector<int64_t> routed = {100, 100, 100, 3000, 5, 5, 5, 5};
  const auto placement =
      plan_experts({.policy = PolicyName::kLazarus, .slots = 4}, shape(2, 4), 4, routed);
  ASSERT_TRUE(placement.ok()) << placement.error().message;
  const auto first = replica_counts(*placement, 0);
  EXPECT_GT(first[3], first[0]) << "the hot expert has more";
  for (uint32_t layer = 0; layer < 2; ++layer) {
    for (const auto& holders : holders_of_experts(*placement, layer)) {
      EXPECT_GE(holders.size(), 2u) << "two of each unless asked otherwise";
    }
  }
}

TEST(PlannedPlacementTest, AsksForNoMoreReplicasThanThereCanBe) {
  const PlacementOptions lazarus{.policy = PolicyName::kLazarus};
  const auto alone = plan_experts(lazarus, shape(1, 4), 1, {});
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  EXPECT_EQ(alone->ranks, 1u);
  // More ranks than experts is no trouble for replicas.
  const auto many = plan_experts(lazarus, shape(1, 3), 8, {});
  ASSERT_TRUE(many.ok()) << many.error().message;
  const auto tight = plan_experts({.policy = PolicyName::kLazarus, .slots = 1}, shape(1, 4), 4, {});
  EXPECT_TRUE(tight.ok()) << "one of each is what fits";
  const auto asked = plan_experts({.policy = PolicyName::kLazarus, .slots = 1, .replicas_min = 2},
                                  shape(1, 4), 4, {});
  EXPECT_FALSE(asked.ok()) << "but not what was asked for";
}

TEST(RouterSkewTest, FirstChoicesFollowZipfsLaw) {
  ModelConfig config = shape(4, 8);
  config.router_skew = 1.2;
  config.seq_len = 64;
  std::vector<int32_t> tokens;
  for (int i = 0; i < 64 * 256; ++i) tokens.push_back(i / 64);
  double harmonic = 0;
  for (int i = 1; i <= 8; ++i) harmonic += std::pow(i, -1.2);
  std::set<size_t> most;
  for (uint32_t layer = 0; layer < 4; ++layer) {
    const std::vector<float> logits = skew_logits(config, layer, tokens);
    std::vector<double> share(8);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto row = std::span(logits).subspan(i * 8, 8);
      share[static_cast<size_t>(std::ranges::max_element(row) - row.begin())] +=
          1.0 / static_cast<double>(tokens.size());
    }
    most.insert(static_cast<size_t>(std::ranges::max_element(share) - share.begin()));
    std::ranges::sort(share, std::greater());
    for (int i = 0; i < 8; ++i) {
      EXPECT_NEAR(share[static_cast<size_t>(i)], std::pow(i + 1, -1.2) / harmonic, 0.02) << i;
    }
  }
  EXPECT_GT(most.size(), 1u) << "layers have favourites of their own";
}

TEST(RouterSkewTest, IsAFunctionOfTheTextAlone) {
  ModelConfig config = shape(1, 4);
  config.router_skew = 0.5;
  config.seq_len = 4;
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto both = skew_logits(config, 0, tokens);
  const auto second = skew_logits(config, 0, std::span(tokens).subspan(4));
  EXPECT_EQ(std::vector<float>(both.begin() + 16, both.end()), second);
}

TEST(RouterSkewTest, AnotherOrderHasOtherFavourites) {
  ModelConfig config = shape(1, 16);
  config.router_skew = 100;  // all tokens to the most popular one
  config.seq_len = 1;
  std::set<ptrdiff_t> favourites;
  for (config.router_skew_order = 0; config.router_skew_order < 12; ++config.router_skew_order) {
    const auto logits = skew_logits(config, 0, std::vector<int32_t>{7});
    favourites.insert(std::ranges::max_element(logits) - logits.begin());
  }
  EXPECT_GT(favourites.size(), 4u);
}

TEST(RouterSkewTest, BelongsToTheRun) {
  TrainConfig config;
  const std::string plain = to_json(config);
  EXPECT_EQ(plain.find("router_skew"), std::string::npos) << "as before there was any";
  config.model.router_skew = 1.2;
  const auto back = parse_train_config(to_json(config), "test");
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->model.router_skew, 1.2);
  EXPECT_THAT(difference(TrainConfig{}, config), HasSubstr("router_skew"));
  EXPECT_THAT(difference(config, TrainConfig{}), HasSubstr("router_skew"));
  config.model.router_skew_order = 3;
  const auto ordered = parse_train_config(to_json(config), "test");
  ASSERT_TRUE(ordered.ok());
  EXPECT_EQ(ordered->model.router_skew_order, 3u);
  EXPECT_THAT(difference(*back, *ordered), HasSubstr("router_skew_order"));
}

}  // namespace
}  // namespace moetrain
