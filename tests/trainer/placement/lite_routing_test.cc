// Lite routing: replicas on the source's node share its tokens, otherwise all replicas do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "trainer/placement/token_shares.h"

namespace moetrain {
namespace {

using testing::ElementsAre;
using Counts = std::vector<int64_t>;
using Ranks = std::vector<uint32_t>;

struct Case {
  Counts tokens;       // [rank]
  Ranks slot_ranks;    // ascending
  Ranks node_of_rank;  // [rank]
};

Case random_case(std::mt19937_64& random) {
  Case one;
  const size_t ranks = 1 + random() % 9;
  const size_t nodes = 1 + random() % 4;
  for (size_t rank = 0; rank < ranks; ++rank) {
    one.node_of_rank.push_back(static_cast<uint32_t>(7 * (random() % nodes)));
    one.tokens.push_back(random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 200));
  }
  one.slot_ranks.resize(1 + random() % 12);
  for (uint32_t& rank : one.slot_ranks) rank = static_cast<uint32_t>(random() % ranks);
  std::ranges::sort(one.slot_ranks);
  return one;
}

bool node_has_slot(const Case& one, size_t source) {
  return std::ranges::any_of(one.slot_ranks, [&](uint32_t rank) {
    return one.node_of_rank[rank] == one.node_of_rank[source];
  });
}

// The tokens that a slot gets from its own node, and from nodes without a slot.
std::pair<int64_t, int64_t> received(const Case& one, const Counts& shares, size_t slot) {
  std::pair<int64_t, int64_t> sums;
  for (size_t source = 0; source < one.tokens.size(); ++source) {
    const int64_t share = shares[source * one.slot_ranks.size() + slot];
    (node_has_slot(one, source) ? sums.first : sums.second) += share;
  }
  return sums;
}

void expect_within_one(int64_t count, int64_t sum, size_t slots) {
  EXPECT_GE(count, sum / static_cast<int64_t>(slots));
  EXPECT_LE(count, (sum + static_cast<int64_t>(slots) - 1) / static_cast<int64_t>(slots));
}

void expect_invariants(const Case& one, uint32_t turn) {
  const size_t slots = one.slot_ranks.size();
  const Counts shares = share_tokens_by_node(one.tokens, one.slot_ranks, one.node_of_rank, turn);
  ASSERT_EQ(shares.size(), one.tokens.size() * slots);
  int64_t away = 0;
  for (size_t source = 0; source < one.tokens.size(); ++source) {
    const auto begin = shares.begin() + static_cast<ptrdiff_t>(source * slots);
    EXPECT_GE(*std::min_element(begin, begin + static_cast<ptrdiff_t>(slots)), 0);
    EXPECT_EQ(std::accumulate(begin, begin + static_cast<ptrdiff_t>(slots), int64_t{0}),
              one.tokens[source]);
    if (!node_has_slot(one, source)) {
      away += one.tokens[source];
      continue;
    }
    for (size_t slot = 0; slot < slots; ++slot) {
      if (one.node_of_rank[one.slot_ranks[slot]] == one.node_of_rank[source]) continue;
      EXPECT_EQ(begin[static_cast<ptrdiff_t>(slot)], 0) << "left a node that has a replica";
    }
  }
  for (size_t slot = 0; slot < slots; ++slot) {
    const uint32_t node = one.node_of_rank[one.slot_ranks[slot]];
    int64_t of_node = 0;
    for (size_t source = 0; source < one.tokens.size(); ++source) {
      if (one.node_of_rank[source] == node) of_node += one.tokens[source];
    }
    const auto on_node = std::ranges::count_if(
        one.slot_ranks, [&](uint32_t rank) { return one.node_of_rank[rank] == node; });
    const auto [near, far] = received(one, shares, slot);
    expect_within_one(near, of_node, static_cast<size_t>(on_node));
    expect_within_one(far, away, slots);
  }
}

TEST(LiteRoutingTest, HoldsInvariantsOnRandomCases) {
  std::mt19937_64 random(20270102);
  for (int round = 0; round < 5'000; ++round) {
    expect_invariants(random_case(random), static_cast<uint32_t>(random() % 20));
  }
}

TEST(LiteRoutingTest, EqualsEvenShareOnOneNode) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 500; ++round) {
    Case one = random_case(random);
    std::ranges::fill(one.node_of_rank, 3);
    EXPECT_EQ(share_tokens_by_node(one.tokens, one.slot_ranks, one.node_of_rank, 5),
              share_tokens(one.tokens, one.slot_ranks, 5));
  }
}

TEST(LiteRoutingTest, SharesWithinNodeFirst) {
  // Ranks 0 and 1 on one node, 2 and 3 on another, 4 alone. Slots on ranks 0, 1 and 2.
  const Counts shares =
      share_tokens_by_node(Counts{10, 2, 5, 7, 9}, Ranks{0, 1, 2}, Ranks{0, 0, 1, 1, 2}, 0);
  EXPECT_THAT(shares, ElementsAre(6, 4, 0,  //
                                  0, 2, 0,  //
                                  0, 0, 5,  //
                                  0, 0, 7,  // to the only replica of its node, however busy
                                  3, 3, 3));
}

}  // namespace
}  // namespace moetrain
