// Token shares: their invariants on random placements and loads, and a naive reference.
#include "trainer/placement/token_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace moetrain {
namespace {

using testing::ElementsAre;
using Counts = std::vector<int64_t>;
using Ranks = std::vector<uint32_t>;

int64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// The definition in long double and by repeated search, token by token.
Counts reference(const Counts& tokens, const Ranks& slot_ranks, uint32_t turn) {
  const size_t slots = slot_ranks.size();
  const int64_t all = sum(tokens);
  Counts room(slots);
  for (int64_t i = 0; i < all / static_cast<int64_t>(slots); ++i) {
    for (int64_t& one : room) ++one;
  }
  for (size_t i = 0; sum(room) < all; ++i) ++room[(turn + i) % slots];
  Counts shares(tokens.size() * slots);
  Counts rest = tokens;
  for (size_t slot = 0; slot < slots; ++slot) {
    while (rest[slot_ranks[slot]] > 0 && room[slot] > 0) {
      --rest[slot_ranks[slot]];
      --room[slot];
      ++shares[slot_ranks[slot] * slots + slot];
    }
  }
  for (size_t source = 0; source < tokens.size(); ++source) {
    const int64_t k = rest[source];
    const int64_t open = sum(room);
    if (k == 0) continue;
    const Counts was = room;
    std::vector<bool> up(slots);
    for (size_t slot = 0; slot < slots; ++slot) {
      while ((was[slot] - room[slot] + 1) * open <= k * was[slot]) {
        --room[slot];
        --rest[source];
      }
    }
    while (rest[source] > 0) {
      size_t best = slots;
      for (size_t slot = 0; slot < slots; ++slot) {
        if (up[slot]) continue;
        const auto behind = [&](size_t s) { return k * was[s] - (was[s] - room[s]) * open; };
        if (best == slots || behind(slot) > behind(best)) best = slot;
      }
      up[best] = true;
      --room[best];
      --rest[source];
    }
    for (size_t slot = 0; slot < slots; ++slot) {
      shares[source * slots + slot] += was[slot] - room[slot];
    }
  }
  return shares;
}

void expect_invariants(const Counts& tokens, const Ranks& slot_ranks, uint32_t turn) {
  const size_t slots = slot_ranks.size();
  const Counts shares = share_tokens(tokens, slot_ranks, turn);
  ASSERT_EQ(shares.size(), tokens.size() * slots);
  const auto count = static_cast<int64_t>(slots);
  const int64_t low = sum(tokens) / count;
  const int64_t high = (sum(tokens) + count - 1) / count;
  const Counts quotas = slot_quotas(sum(tokens), slots, turn);
  for (size_t source = 0; source < tokens.size(); ++source) {
    int64_t sent = 0;
    for (size_t slot = 0; slot < slots; ++slot) {
      EXPECT_GE(shares[source * slots + slot], 0);
      sent += shares[source * slots + slot];
    }
    EXPECT_EQ(sent, tokens[source]) << "source " << source;
    // Local first: tokens leave only when the own slots are full of own tokens.
    int64_t local = 0;
    int64_t own_room = 0;
    for (size_t slot = 0; slot < slots; ++slot) {
      if (slot_ranks[slot] != source) continue;
      local += shares[source * slots + slot];
      own_room += quotas[slot];
    }
    EXPECT_EQ(local, std::min(tokens[source], own_room)) << "source " << source;
  }
  for (size_t slot = 0; slot < slots; ++slot) {
    int64_t received = 0;
    for (size_t source = 0; source < tokens.size(); ++source) {
      received += shares[source * slots + slot];
    }
    EXPECT_GE(received, low);
    EXPECT_LE(received, high);
    EXPECT_EQ(received, quotas[slot]);
  }
  EXPECT_EQ(shares, reference(tokens, slot_ranks, turn));
}

TEST(TokenSharesTest, HoldsInvariantsOnRandomLoads) {
  std::mt19937_64 random(20260301);
  for (int round = 0; round < 3000; ++round) {
    const size_t ranks = 1 + random() % 8;
    Ranks slot_ranks(1 + random() % 12);  // also more than there are ranks
    for (uint32_t& rank : slot_ranks) rank = static_cast<uint32_t>(random() % ranks);
    std::ranges::sort(slot_ranks);
    Counts tokens(ranks);
    const uint64_t scale = 1ull << (random() % 9);
    for (int64_t& count : tokens) {
      count = random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % scale);
    }
    expect_invariants(tokens, slot_ranks, static_cast<uint32_t>(random() % 20));
  }
}

TEST(TokenSharesTest, HoldsInvariantsOnEdgeCases) {
  expect_invariants({0, 0, 0}, {0, 2}, 1);
  expect_invariants({17}, {0}, 5);
  expect_invariants({17}, {0, 0, 0}, 5);
  expect_invariants({0, 5}, {0}, 0);
}

TEST(TokenSharesTest, MatchesHandComputedExample) {
  // 10 tokens, slots on ranks 0 and 1: 5 each. Rank 0 keeps 5 of its 7, rank 2's one and rank 0's
  // other two find room for 3 on rank 1.
  EXPECT_THAT(share_tokens(Counts{7, 2, 1}, Ranks{0, 1}, 0), ElementsAre(5, 2, 0, 2, 0, 1));
  // Two slots of one rank, the odd token to the slot whose turn it is.
  EXPECT_THAT(share_tokens(Counts{3, 4}, Ranks{0, 0, 1}, 2), ElementsAre(2, 1, 0, 0, 1, 3));
}

TEST(TokenSharesTest, RemoteTokensAreProportionalToRoom) {
  // 400 tokens, 4 slots of 100. Rank 0 has 40 of rank 1's room taken by rank 1 itself: rooms for
  // the others are 60, 100, 100 after its own 100.
  const Counts shares = share_tokens(Counts{360, 40, 0, 0}, Ranks{0, 1, 2, 3}, 0);
  EXPECT_THAT(shares, ElementsAre(100, 60, 100, 100, 0, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  // Two sources that have nowhere to stay share the rooms alike.
  EXPECT_THAT(share_tokens(Counts{0, 0, 30, 30}, Ranks{0, 1}, 0),
              ElementsAre(0, 0, 0, 0, 15, 15, 15, 15));
}

TEST(TokenSharesTest, LargeCountsDoNotWrapAround) {
  const int64_t most = (int64_t{1} << 31) - 1;
  const Counts shares = share_tokens(Counts{most - 2, 1, 1}, Ranks{1, 1, 2}, 0);
  EXPECT_EQ(sum(shares), most);
  EXPECT_EQ(shares[0] + shares[1] + shares[2], most - 2);
}

}  // namespace
}  // namespace moetrain
