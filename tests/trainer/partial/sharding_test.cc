#include "trainer/partial/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace moetrain {
namespace {

constexpr DenseSharding kShardings[] = {DenseSharding::kEqual, DenseSharding::kAdaptive,
                                        DenseSharding::kBytes};

uint64_t bytes_of(std::span<const Share> shares, uint32_t rank) {
  uint64_t bytes = 0;
  for (const Share& share : shares) bytes += share.rank == rank ? share.length : 0;
  return bytes;
}

std::vector<ShareUnit> random_units(std::mt19937& random, uint32_t ranks) {
  std::vector<ShareUnit> units(1 + random() % 20);
  for (ShareUnit& unit : units) {
    unit.bytes = random() % 8 == 0 ? random() % 100 : random() % 1'000'000;
    if (random() % 3 == 0) continue;
    std::vector<uint32_t> all(ranks);
    std::iota(all.begin(), all.end(), 0u);
    std::shuffle(all.begin(), all.end(), random);
    unit.holders.assign(all.begin(), all.begin() + 1 + random() % ranks);
  }
  return units;
}

TEST(ShardingTest, HoldersCoverEveryByteOnce) {
  const uint32_t seed = 8;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 600; ++round) {
    const uint32_t ranks = 1 + random() % 9;
    const auto units = random_units(random, ranks);
    for (const DenseSharding dense : kShardings) {
      std::vector<uint64_t> covered(units.size());
      for (const Share& share : share_units(units, ranks, dense)) {
        const ShareUnit& unit = units.at(share.unit);
        ASSERT_EQ(share.offset, covered[share.unit]) << dense_sharding_name(dense);
        ASSERT_GT(share.length, 0u);
        ASSERT_LT(share.rank, ranks);
        covered[share.unit] += share.length;
        if (!unit.holders.empty()) {
          EXPECT_THAT(unit.holders, testing::Contains(share.rank));
        }
      }
      for (size_t i = 0; i < units.size(); ++i) EXPECT_EQ(covered[i], units[i].bytes);
    }
  }
}

TEST(ShardingTest, BytesMinimizeLargestShare) {
  const uint32_t seed = 9;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const uint32_t ranks = 1 + random() % 9;
    const auto units = random_units(random, ranks);
    std::vector<ShareUnit> experts;
    for (const ShareUnit& unit : units) {
      if (!unit.holders.empty()) experts.push_back(unit);
    }
    const auto without = summarise(share_units(experts, ranks, DenseSharding::kBytes), ranks);
    const auto shares = share_units(units, ranks, DenseSharding::kBytes);
    const auto summary = summarise(shares, ranks);
    // Lower bound of the largest share: the mean, and a rank's experts. Cuts cost 64 bytes a unit.
    const double least = std::max(summary.mean_bytes, static_cast<double>(without.max_bytes));
    const double cuts = static_cast<double>(kShareCutBytes * (units.size() + 1));
    EXPECT_LE(static_cast<double>(summary.max_bytes), least + cuts) << "round " << round;
    EXPECT_EQ(summary.max_bytes, [&] {
      uint64_t most = 0;
      for (uint32_t rank = 0; rank < ranks; ++rank) most = std::max(most, bytes_of(shares, rank));
      return most;
    }());
  }
}

TEST(ShardingTest, AdaptiveAccountsForExpertBytes) {
  const std::vector<ShareUnit> units = {{6000, {}}, {4000, {}}, {5000, {0}}, {640, {1, 0}}};
  const auto equal = share_units(units, 2, DenseSharding::kEqual);
  EXPECT_EQ(bytes_of(equal, 0), 6000u + 5000u + 320u);
  const auto adaptive = share_units(units, 2, DenseSharding::kAdaptive);
  EXPECT_EQ(bytes_of(adaptive, 0), 4000u + 5000u + 320u);
  const auto bytes = summarise(share_units(units, 2, DenseSharding::kBytes), 2);
  EXPECT_NEAR(bytes.max_to_mean(), 1, 0.02);
  EXPECT_EQ(bytes.total_bytes, 15'640u);
}

TEST(ShardingTest, OnlyBytesDividesALargeEmbedding) {
  const std::vector<ShareUnit> units = {{1'000'000, {}}, {1'000, {}}, {1'000, {}}};
  EXPECT_GT(summarise(share_units(units, 8, DenseSharding::kAdaptive), 8).max_to_mean(), 7);
  EXPECT_LT(summarise(share_units(units, 8, DenseSharding::kBytes), 8).max_to_mean(), 1.01);
}

TEST(ShardingTest, ParsesEachName) {
  for (const DenseSharding dense : kShardings) {
    EXPECT_EQ(*parse_dense_sharding(dense_sharding_name(dense)), dense);
  }
  EXPECT_THAT(parse_dense_sharding("byte").error().message, testing::HasSubstr("'byte'"));
}

}  // namespace
}  // namespace moetrain
