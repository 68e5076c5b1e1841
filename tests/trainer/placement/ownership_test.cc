// The part of an expert's state that each rank holds.
#include "trainer/placement/ownership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moetrain {
namespace {

using testing::ElementsAre;

constexpr uint64_t kElements = 1001;

// Experts 0 and 2 have one holder; expert 1 is on ranks 0 and 2, expert 2 twice on rank 1.
ComputePlacement three_ranks() { return *make_placement({{{1, 0}, {2, 2}, {1}}}, 3, 3); }

TEST(ElementParts, CoverEachElementOnce) {
  for (const uint32_t parts : {1u, 2u, 3u, 7u, 64u}) {
    for (const uint64_t elements : {0ull, 1ull, 5ull, 63ull, 64ull, 1001ull, 1ull << 40}) {
      uint64_t next = 0;
      for (uint32_t n = 0; n < parts; ++n) {
        const ElementRange part = part_of(elements, n, parts);
        EXPECT_EQ(part.begin, next);
        EXPECT_LE(part.size(), (elements + parts - 1) / parts);
        EXPECT_GE(part.size(), elements / parts);
        next = part.end;
      }
      EXPECT_EQ(next, elements);
    }
  }
}

TEST(Ownership, ReplicatedHoldersHoldWholeExperts) {
  const Ownership ownership = make_ownership(ExpertState::kReplicated, three_ranks());
  EXPECT_EQ(ownership.ranks(), 3u);
  EXPECT_THAT(ownership.holders(0, 0), ElementsAre(0));
  EXPECT_THAT(ownership.holders(0, 1), ElementsAre(0, 2));
  EXPECT_THAT(ownership.holders(0, 2), ElementsAre(1));
  EXPECT_EQ(ownership.held(2, 0, 1, kElements), (ElementRange{0, kElements}));
  EXPECT_TRUE(ownership.held(1, 0, 1, kElements).empty());
  EXPECT_EQ(ownership.counted(0, 0, 1, kElements), (ElementRange{0, kElements}));
  EXPECT_TRUE(ownership.counted(2, 0, 1, kElements).empty()) << "only the lowest holder counts";
}

TEST(Ownership, ShardedRanksHoldAPartOfEveryExpert) {
  const Ownership ownership = make_ownership(ExpertState::kSharded, three_ranks());
  for (uint32_t expert = 0; expert < 3; ++expert) {
    EXPECT_THAT(ownership.holders(0, expert), ElementsAre(0, 1, 2));
    for (uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ownership.held(rank, 0, expert, kElements), part_of(kElements, rank, 3));
    }
  }
}

TEST(Ownership, EveryElementIsCountedOnce) {
  for (const ExpertState state : {ExpertState::kReplicated, ExpertState::kSharded}) {
    const Ownership ownership = make_ownership(state, three_ranks());
    for (uint32_t expert = 0; expert < 3; ++expert) {
      uint64_t counted = 0;
      for (uint32_t rank = 0; rank < 3; ++rank) {
        counted += ownership.counted(rank, 0, expert, kElements).size();
      }
      EXPECT_EQ(counted, kElements);
    }
  }
}

TEST(Ownership, HandlesMoreRanksThanElements) {
  const Ownership ownership = Ownership::sharded(1, 1, 5);
  uint64_t held = 0;
  for (uint32_t rank = 0; rank < 5; ++rank) held += ownership.held(rank, 0, 0, 3).size();
  EXPECT_EQ(held, 3u);
}

// The state of a sharded expert does not move with the rank that computes the expert.
TEST(Ownership, ShardedDoesNotDependOnThePlacement) {
  const ComputePlacement other = *make_placement({{{0}, {1}, {2}}}, 3, 3);
  EXPECT_EQ(make_ownership(ExpertState::kSharded, three_ranks()),
            make_ownership(ExpertState::kSharded, other));
  EXPECT_NE(make_ownership(ExpertState::kReplicated, three_ranks()),
            make_ownership(ExpertState::kReplicated, other));
}

}  // namespace
}  // namespace moetrain
