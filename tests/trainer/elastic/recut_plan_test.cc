#include "trainer/elastic/recut_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace moetrain {
namespace {

using testing::ElementsAre;

TEST(RecutPlanTest, RemainingRanksGetEqualRangesOthersNone) {
  EXPECT_THAT(cut_for({}, 3, 10),
              ElementsAre(ElementRange{0, 3}, ElementRange{3, 6}, ElementRange{6, 10}));
  EXPECT_THAT(cut_for({true, false, true}, 3, 10),
              ElementsAre(ElementRange{0, 5}, ElementRange{}, ElementRange{5, 10}));
}

TEST(RecutPlanTest, ALostRangeMakesTheGroupIncomplete) {
  const std::vector<CutStatus> statuses = {{.held = {0, 3}}, {.held = {6, 10}}};
  EXPECT_FALSE(agree_on_cut(statuses, 10).whole);
}

TEST(RecutPlanTest, ARecutThatNoRankCompletedIsUndone) {
  const std::vector<CutStatus> statuses = {{.held = {0, 5}, .filled = true, .next = {0, 3}},
                                           {.held = {5, 10}, .filled = true, .next = {3, 6}}};
  const CutAgreement agreement = agree_on_cut(statuses, 10);
  EXPECT_TRUE(agreement.whole);
  EXPECT_FALSE(agreement.adopts);
  EXPECT_THAT(agreement.held, ElementsAre(ElementRange{0, 5}, ElementRange{5, 10}));
}

// Rank 0 has released its old range; the others were lost from the barrier.
TEST(RecutPlanTest, AllRanksCompleteRecutThatOneCompleted) {
  const std::vector<CutStatus> statuses = {{.held = {0, 3}},
                                           {.held = {5, 10}, .filled = true, .next = {3, 6}},
                                           {.filled = true, .next = {6, 10}}};
  const CutAgreement agreement = agree_on_cut(statuses, 10);
  EXPECT_TRUE(agreement.whole);
  EXPECT_TRUE(agreement.adopts);
  EXPECT_THAT(agreement.held,
              ElementsAre(ElementRange{0, 3}, ElementRange{3, 6}, ElementRange{6, 10}));
}

TEST(RecutPlanTest, CutStatusRoundTrips) {
  const CutStatus status{.held = {2, 7}, .filled = true, .next = {4, 11}};
  EXPECT_EQ(to_values(status).size(), kCutStatusValues);
  EXPECT_EQ(cut_status_from(to_values(status)), status);
}

// Result of a plan: elements of expert 0 that each rank holds afterwards, and how often each
// element was received.
class AppliedPlan {
 public:
  AppliedPlan(const RecutRequest& request, const RecutPlan& plan) {
    for (uint32_t rank = 0; rank < request.held.size(); ++rank) {
      for (uint64_t i = request.held[rank].begin; i < request.held[rank].end; ++i) {
        has_[rank].insert(i);
      }
    }
    const std::map<uint32_t, std::set<uint64_t>> before = has_;
    const uint64_t most =
        std::max(request.buffer_bytes / 2, request.bytes_per_element + request.bytes_per_piece);
    for (const auto& round : plan.moves.rounds) {
      std::map<uint32_t, uint64_t> sent;
      std::map<uint32_t, uint64_t> received;
      for (const Move& move : round) add(request, plan, before, move, sent, received);
      for (const auto* bytes : {&sent, &received}) {
        for (const auto& [rank, count] : *bytes) EXPECT_LE(count, most);
      }
    }
  }

  bool has(uint32_t rank, const ElementRange& range) {
    for (uint64_t i = range.begin; i < range.end; ++i) {
      if (!has_[rank].contains(i)) return false;
    }
    return true;
  }
  uint64_t dense_elements(uint32_t rank) { return dense_[rank]; }

 private:
  void add(const RecutRequest& request, const RecutPlan& plan,
           const std::map<uint32_t, std::set<uint64_t>>& before, const Move& move,
           std::map<uint32_t, uint64_t>& sent, std::map<uint32_t, uint64_t>& received) {
    const uint64_t experts_items = plan.expert_pieces.size() * request.experts;
    const bool is_expert = move.item < experts_items;
    const RecutPiece& piece = is_expert ? plan.expert_pieces[move.item / request.experts]
                                        : plan.dense_pieces[move.item - experts_items];
    const uint64_t bytes =
        piece.elements.size() * request.bytes_per_element + request.bytes_per_piece;
    sent[move.from] += bytes;
    received[move.to] += bytes;
    if (!is_expert) {
      EXPECT_TRUE(request.dense_held[move.from] && !request.dense_held[move.to]);
      dense_[move.to] += piece.elements.size();
    }
    if (!is_expert || move.item % request.experts != 0) return;
    for (uint64_t i = piece.elements.begin; i < piece.elements.end; ++i) {
      EXPECT_TRUE(before.at(move.from).contains(i));
      EXPECT_TRUE(has_[move.to].insert(i).second) << "element " << i << " came twice";
    }
  }

  std::map<uint32_t, std::set<uint64_t>> has_;
  std::map<uint32_t, uint64_t> dense_;
};

std::vector<bool> random_flags(std::mt19937& random, uint32_t count) {
  std::vector<bool> flags;
  for (uint32_t i = 0; i < count; ++i) flags.push_back(random() % 3 != 0);
  flags[random() % count] = true;
  return flags;
}

TEST(RecutPlanProperty, EveryElementMovesOnceWithinTheBuffers) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const uint32_t ranks = 1 + random() % 7;
    const uint64_t elements = ranks + random() % 60;
    RecutRequest request{.held = cut_for(random_flags(random, ranks), ranks, elements),
                         .wanted = cut_for(random_flags(random, ranks), ranks, elements),
                         .experts = 1 + static_cast<uint32_t>(random() % 3),
                         .dense = {5, 1 + random() % 40},
                         .dense_held = random_flags(random, ranks),
                         .bytes_per_element = 12,
                         .bytes_per_piece = 8,
                         .buffer_bytes = 12 * 2 * (1 + random() % 50)};
    // A re-cut that was interrupted leaves ranges that overlap.
    if (random() % 3 == 0) request.held[random() % ranks] = {0, elements / 2};
    std::vector<CutStatus> statuses;
    for (const ElementRange& range : request.held) statuses.push_back({.held = range});
    if (!agree_on_cut(statuses, elements).whole) continue;
    const RecutPlan plan = plan_recut(request);
    AppliedPlan applied(request, plan);
    uint64_t bytes = 0;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(applied.has(rank, request.wanted[rank]));
      const ElementRange& held = request.held[rank];
      const ElementRange& wanted = request.wanted[rank];
      uint64_t missing = 0;
      for (uint64_t i = wanted.begin; i < wanted.end; ++i) {
        missing += i < held.begin || i >= held.end ? 1 : 0;
      }
      const uint64_t dense = request.dense_held[rank] ? 0 : 5 + request.dense[1];
      EXPECT_EQ(applied.dense_elements(rank), dense);
      bytes += 12 * (missing * request.experts + dense);
    }
    EXPECT_EQ(plan.moves.bytes, bytes);
  }
}

}  // namespace
}  // namespace moetrain
