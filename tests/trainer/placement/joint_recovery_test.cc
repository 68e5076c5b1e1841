#include "trainer/placement/joint_recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

namespace moetrain {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Sets = std::vector<std::vector<uint32_t>>;

Sets random_sets(std::mt19937& random, uint32_t domains) {
  Sets sets(1 + random() % 12);
  for (auto& set : sets) {
    for (uint32_t domain = 0; domain < domains; ++domain) {
      if (random() % 3 == 0) set.push_back(domain);
    }
    if (set.empty()) set.push_back(random() % domains);
  }
  return sets;
}

// Every set of dead domains, one by one.
std::vector<double> enumerated(const Sets& sets, uint32_t domains) {
  std::vector<double> alive(domains + 1), all(domains + 1);
  for (uint32_t dead = 0; dead < 1u << domains; ++dead) {
    const bool lost = std::ranges::any_of(sets, [&](const auto& set) {
      return std::ranges::all_of(set, [&](uint32_t domain) { return (dead >> domain & 1) != 0; });
    });
    const auto k = static_cast<size_t>(std::popcount(dead));
    all[k] += 1;
    alive[k] += lost ? 0 : 1;
  }
  for (size_t k = 0; k < all.size(); ++k) alive[k] /= all[k];
  return alive;
}

TEST(JointRecoveryTest, EqualsEnumeration) {
  const uint32_t seed = 21;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const uint32_t domains = 2 + random() % 11;
    const Sets sets = random_sets(random, domains);
    const std::vector<double> expected = enumerated(sets, domains);
    const auto recovery = joint_recovery(sets, domains);
    ASSERT_EQ(recovery.size(), domains - 1);
    for (const RecoveryAt& at : recovery) {
      EXPECT_NEAR(at.probability, expected[at.failed], 1e-12) << "round " << round;
      EXPECT_EQ(at.error, 0);
    }
    const uint32_t most = 1 + random() % (domains - 1);
    const auto few = joint_recovery(sets, domains, most);
    ASSERT_EQ(few.size(), most);
    for (const RecoveryAt& at : few) EXPECT_NEAR(at.probability, expected[at.failed], 1e-12);
  }
}

// 512 pairs of 1,024 domains: k deaths spare all pairs in C(512, k) 2^k of C(1024, k) cases.
TEST(JointRecoveryTest, IsExactForManySmallComponents) {
  Sets pairs;
  for (uint32_t i = 0; i < 1024; i += 2) pairs.push_back({i, i + 1});
  for (const RecoveryAt& at : joint_recovery(pairs, 1024)) {
    const double k = at.failed;
    const auto log_choose = [](double n, double m) {
      return std::lgamma(n + 1) - std::lgamma(m + 1) - std::lgamma(n - m + 1);
    };
    const double expected =
        k > 512 ? 0 : std::exp(log_choose(512, k) + k * std::log(2.0) - log_choose(1024, k));
    EXPECT_NEAR(at.probability, expected, 1e-9) << k;
    EXPECT_EQ(at.error, 0);
  }
}

// A ring of 24 pairs is one component of more domains than are enumerated: k deaths of which no
// two are neighbours are n / (n - k) C(n - k, k).
TEST(JointRecoveryTest, EstimatesWithinItsErrorBars) {
  constexpr uint32_t kDomains = 24;
  Sets ring;
  for (uint32_t i = 0; i < kDomains; ++i) {
    ring.push_back({std::min(i, (i + 1) % kDomains), std::max(i, (i + 1) % kDomains)});
  }
  const auto choose = [](double n, double k) {
    return k > n ? 0
                 : std::round(
                       std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)));
  };
  for (const RecoveryAt& at : joint_recovery(ring, kDomains)) {
    const double n = kDomains;
    const double k = at.failed;
    const double expected = k > n / 2 ? 0 : n / (n - k) * choose(n - k, k) / choose(n, k);
    EXPECT_GT(at.error, 0);
    EXPECT_LT(at.error, 0.01);
    EXPECT_NEAR(at.probability, expected, 3 * at.error) << k;
  }
}

TEST(JointRecoveryTest, ExpertWithoutHolderNeverSurvives) {
  for (const RecoveryAt& at : joint_recovery({{0, 1}, {}}, 4)) EXPECT_EQ(at.probability, 0);
  EXPECT_THAT(joint_recovery({{0}}, 1), IsEmpty());
  for (const RecoveryAt& at : joint_recovery({}, 4)) EXPECT_EQ(at.probability, 1);
}

TEST(JointRecoveryTest, KeepsSmallestSets) {
  EXPECT_THAT(smallest_sets({{0, 1, 2}, {1, 2}, {3}, {1, 2}, {2, 3}, {0, 4}}),
              ElementsAre(ElementsAre(3), ElementsAre(0, 4), ElementsAre(1, 2)));
  EXPECT_THAT(smallest_sets({{1}, {}}), ElementsAre(IsEmpty()));
}

}  // namespace
}  // namespace moetrain
