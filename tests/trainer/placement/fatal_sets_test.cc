#include "trainer/placement/fatal_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

namespace moetrain {
namespace {

using testing::ElementsAre;

std::vector<RankMask> random_masks(uint32_t domains, size_t count, std::mt19937& random) {
  std::vector<RankMask> masks(count);
  for (RankMask& mask : masks) {
    mask = random() & (random() % 2 == 0 ? random() : UINT32_MAX) & ((1u << domains) - 1);
    mask |= 1u << random() % domains;
  }
  return masks;
}

// Few masks and many: counted in both ways, by one object for one shape after the other.
TEST(FatalSetsTest, EqualsNaiveEnumeration) {
  const uint32_t seed = 17;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (uint32_t domains = 1; domains <= 14; ++domains) {
    FatalCounter counter(domains);
    for (const size_t count : {1, 2, 3, 5, 9, 17, 60, 300}) {
      const std::vector<RankMask> masks = random_masks(domains, count, random);
      std::vector<uint64_t> expected(domains + 1);
      for (uint32_t dead = 0; dead < 1u << domains; ++dead) {
        const bool lost =
            std::ranges::any_of(masks, [&](RankMask mask) { return (mask & ~dead) == 0; });
        if (lost) ++expected[static_cast<size_t>(std::popcount(dead))];
      }
      EXPECT_EQ(counter.count(masks), expected) << domains << " domains, " << count << " masks";
    }
  }
}

TEST(FatalSetsTest, ExpertWithoutDomainIsLostWithAnySet) {
  FatalCounter counter(3);
  EXPECT_THAT(counter.count(std::vector<RankMask>{0b011, 0}), ElementsAre(1, 3, 3, 1));
  EXPECT_THAT(counter.count(std::vector<RankMask>{}), ElementsAre(0, 0, 0, 0));
}

TEST(FatalSetsTest, KeepsSmallestSets) {
  FatalCounter counter(5);
  EXPECT_THAT(counter.smallest(std::vector<RankMask>{0b111, 0b011, 0b11100, 0b011, 0b10100}),
              ElementsAre(0b011, 0b10100));
}

// The limit holds for any overlap of the masks.
TEST(FatalSetsTest, StaysWithinProbeLimit) {
  std::mt19937 random(3);
  for (const uint32_t domains : {4u, 8u, 13u, 20u}) {
    for (const size_t count : {3, 12, 30, 100, 500}) {
      const std::vector<RankMask> masks = random_masks(domains, count, random);
      FatalCounter counter(domains);
      counter.count(masks);
      EXPECT_GT(counter.probes(), count);
      EXPECT_LE(counter.probes(), FatalCounter::probes_max(domains, count) + count)
          << domains << " domains, " << count << " masks";
    }
  }
  // Pairs that share nothing, of which a table would take 344,064 probes.
  FatalCounter counter(20);
  counter.count(std::vector<RankMask>{0b11, 0b1100, 0b110000, 0b11000000});
  EXPECT_LT(counter.probes(), 1'000u);
}

}  // namespace
}  // namespace moetrain
