#include "trainer/simulate/sharded/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/trainer/simulate/sharded/sharded_cluster.h"

namespace moetrain::simulate::sharded {
namespace {

double sum(const std::vector<double>& row) { return std::accumulate(row.begin(), row.end(), 0.0); }

TEST(ShardedRouting, SharesAreCappedAndSumToOne) {
  std::vector<double> shares{8, 1, 1};
  to_shares(shares, 1);
  EXPECT_EQ(shares, (std::vector<double>{0.8, 0.1, 0.1}));
  // No share above half: the excess is distributed in proportion, which then caps another share.
  shares = {90, 6, 3, 1};
  to_shares(shares, 0.5);
  EXPECT_DOUBLE_EQ(shares[0], 0.5);
  EXPECT_DOUBLE_EQ(shares[1], 0.3);
  EXPECT_DOUBLE_EQ(shares[2], 0.15);
  shares = {90, 60, 3, 1};
  to_shares(shares, 0.4);
  EXPECT_DOUBLE_EQ(shares[0], 0.4);
  EXPECT_DOUBLE_EQ(shares[1], 0.4);
  EXPECT_DOUBLE_EQ(shares[2], 0.15);
  // No more room than tokens.
  shares = {5, 1};
  to_shares(shares, 0.5);
  EXPECT_EQ(shares, (std::vector<double>{0.5, 0.5}));
}

TEST(ShardedRouting, EverySequenceSendsAllItsTokens) {
  const ShardedModel model = simtest::skewed_model();
  const Routing routing(model, model.shapes[0]);
  const TokenCounts rows = routing.sequences(3, 1);
  ASSERT_EQ(rows.size(), 32U);
  for (const std::vector<double>& row : rows) {
    EXPECT_NEAR(sum(row), 180, 1e-9);
    EXPECT_LE(std::ranges::max(row), 90 + 1e-9) << "a token goes to an expert once";
  }
  EXPECT_EQ(routing.sequences(3, 1), rows) << "a step done again routes as before";
  EXPECT_NE(routing.sequences(4, 1), rows);
  EXPECT_NE(routing.sequences(3, 2), rows);
}

TEST(ShardedRouting, SequencesHaveZipfSharesWithoutNoise) {
  ShardedModel model = simtest::hand_model();
  const Routing routing(model, model.shapes[0]);
  for (const std::vector<double>& row : routing.sequences(0, 1)) {
    EXPECT_NEAR(std::ranges::max(row), 60, 1e-9);
    EXPECT_NEAR(std::ranges::min(row), 30, 1e-9);
  }
}

// The noise that the shipped model derives from published counts is the log's standard deviation.
TEST(ShardedRouting, NoiseIsTheDeviationOfTheLog) {
  ShardedModel model = simtest::skewed_model();
  model.sequences = 4096;
  model.sequence_noise = 0.1;
  model.shapes[0].zipf = 0;
  const Routing routing(model, model.shapes[0]);
  double squares = 0;
  size_t count = 0;
  for (const std::vector<double>& row : routing.sequences(0, 0)) {
    for (const double tokens : row) {
      squares += std::pow(std::log(tokens / 22.5), 2);
      ++count;
    }
  }
  // Shares sum to one, which takes one of the eight degrees of freedom.
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count)), 0.1 * std::sqrt(7.0 / 8), 0.002);
}

TEST(ShardedRouting, RowsAreAddedInOrder) {
  const TokenCounts rows{{1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}};
  EXPECT_EQ(add_rows(rows, 1, 2, 2), (TokenCounts{{8, 10}, {16, 18}}));
}

}  // namespace
}  // namespace moetrain::simulate::sharded
