#include "trainer/placement/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(RecoveryTest, MatchesExampleFromLiterature) {
  // Three ranks with two slots, three experts with two replicas: overlap fails, the ring survives.
  const LayerSlots overlap = {{0, 1}, {0, 1}, {2, 2}};
  const LayerSlots around = {{0, 1}, {1, 2}, {2, 0}};
  EXPECT_THAT(surviving_sets(holder_masks(overlap, 3), 3), ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(surviving_sets(holder_masks(around, 3), 3), ElementsAre(1, 3, 0, 0));
  EXPECT_THAT(holders(overlap, 3)[2], ElementsAre(2));
}

TEST(RecoveryTest, EqualsNaiveEnumeration) {
  const uint32_t seed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const uint32_t ranks = 1 + random() % 12;
    std::vector<RankMask> masks(1 + random() % 9);
    for (RankMask& mask : masks) mask = random() & random() & ((1u << ranks) - 1);
    if (round % 10 != 0) {
      for (RankMask& mask : masks) mask |= 1u << random() % ranks;
    }
    std::vector<uint64_t> expected(ranks + 1);
    for (uint32_t dead = 0; dead < 1u << ranks; ++dead) {
      const bool lost = std::any_of(masks.begin(), masks.end(),
                                    [&](RankMask mask) { return (mask & ~dead) == 0; });
      if (!lost) ++expected[static_cast<size_t>(std::popcount(dead))];
    }
    EXPECT_EQ(surviving_sets(masks, ranks), expected) << "round " << round;
  }
}

TEST(RecoveryTest, DomainsDieTogether) {
  const LayerSlots slots = {{0}, {0, 1}, {1}, {0}};
  const std::vector<uint32_t> nodes = {0, 0, 1, 1};
  EXPECT_THAT(holder_masks(slots, 2, nodes), ElementsAre(0b11, 0b11));
  EXPECT_THAT(holder_masks(slots, 2), ElementsAre(0b1011, 0b0110));
}

TEST(RecoveryTest, ExpertLossIsHypergeometric) {
  for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
    for (uint32_t held = 1; held <= ranks; ++held) {
      const RankMask mask = (1u << held) - 1;
      const auto surviving = surviving_sets(std::vector<RankMask>{mask}, ranks);
      for (uint32_t k = 0; k <= ranks; ++k) {
        const auto sets = static_cast<double>(binomial(ranks, k));
        EXPECT_NEAR(loss_probability(ranks, held, k), 1 - static_cast<double>(surviving[k]) / sets,
                    1e-12);
      }
    }
  }
  EXPECT_EQ(binomial(62, 31), 465428353255261088ull);
  EXPECT_EQ(binomial(3, 4), 0u);
}

TEST(LayerSlotsTest, NamesExpertWithoutHolder) {
  EXPECT_TRUE(check_covers({{0, 2}, {1, 1}}, 3).ok());
  EXPECT_THAT(check_covers({{0, 2}, {0}}, 3).error().message, HasSubstr("no rank holds expert 1"));
  EXPECT_THAT(check_covers({{0, 3}, {1, 2}}, 3).error().message,
              HasSubstr("rank 0 holds expert 3, the layer has 3"));
}

TEST(FailureTakesAllTest, IsTheMeanOverFailures) {
  for (const uint32_t domains : {1u, 7u, 20u, 300u}) {
    for (uint32_t held = 1; held <= domains; held += 1 + domains / 9) {
      double taken = 0;
      double all = 0;
      for (uint32_t dead = 1; dead <= domains; ++dead) {
        all += std::ldexp(1.0, -static_cast<int>(dead));
        taken += std::ldexp(1.0, -static_cast<int>(dead)) * loss_probability(domains, held, dead);
      }
      EXPECT_NEAR(failure_takes_all(domains, held) / (taken / all), 1, 1e-9)
          << held << " of " << domains;
    }
  }
}

TEST(FailureTakesAllTest, FallsWithEveryHolder) {
  EXPECT_EQ(failure_takes_all(1, 1), 1);
  // With three ranks, one dies with weight 4, two with weight 2, all with weight 1.
  EXPECT_DOUBLE_EQ(failure_takes_all(3, 1), (4.0 / 3 + 2 * 2.0 / 3 + 1) / 7);
  EXPECT_DOUBLE_EQ(failure_takes_all(3, 2), (2.0 / 3 + 1) / 7);
  EXPECT_DOUBLE_EQ(failure_takes_all(3, 3), 1.0 / 7);
  for (uint32_t held = 1; held < 16; ++held) {
    EXPECT_GT(failure_takes_all(16, held), failure_takes_all(16, held + 1));
  }
  EXPECT_GT(failure_takes_all(16, 16), 0);
  EXPECT_GT(failure_takes_all(4000, 1), 0);
}

}  // namespace
}  // namespace moetrain
