// Agreement on the last applied step, whenever the group was lost.
#include "trainer/elastic/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace moetrain {
namespace {

using testing::ElementsAre;

RankStatus at(uint64_t step, bool pending = false, uint64_t changes = 0) {
  return {.has_state = true, .applied = step, .pending = pending, .changes = changes};
}

TEST(AgreementTest, AllApplyStepThatAnyApplied) {
  const std::vector<RankStatus> statuses = {at(7, true), at(8), at(7, true)};
  const auto agreed = agree(statuses);
  ASSERT_TRUE(agreed.ok());
  EXPECT_EQ(agreed->step, 8u);
  EXPECT_THAT(agreed->applies, ElementsAre(true, false, true));
  EXPECT_THAT(agreed->state, ElementsAre(true, true, true));
  EXPECT_FALSE(agreed->repeats);
}

TEST(AgreementTest, UnappliedStepIsRepeated) {
  const std::vector<RankStatus> statuses = {at(7, true), at(7), at(7, true)};
  const auto agreed = agree(statuses);
  EXPECT_EQ(agreed->step, 7u);
  EXPECT_THAT(agreed->applies, ElementsAre(false, false, false));
  EXPECT_TRUE(agreed->repeats);
}

TEST(AgreementTest, RankThatCannotCatchUpLosesState) {
  const std::vector<RankStatus> statuses = {at(7), at(8), at(5, true), {}};
  const auto agreed = agree(statuses);
  EXPECT_THAT(agreed->state, ElementsAre(false, true, false, false));
  EXPECT_EQ(agreed->source, 1u);
}

TEST(AgreementTest, SourceHasMostChanges) {
  const std::vector<RankStatus> statuses = {at(7, false, 3), {}, at(7, false, 4), at(7, false, 4)};
  const auto agreed = agree(statuses);
  EXPECT_EQ(agreed->source, 2u);
  EXPECT_EQ(agreed->changes, 4u);
}

TEST(AgreementTest, FailsIfNoRankHasState) { EXPECT_FALSE(agree(std::vector<RankStatus>(3)).ok()); }

TEST(AgreementTest, StatusRoundTrips) {
  const RankStatus status = at(1'000'000, true, 17);
  const RankStatus back = status_from(to_values(status));
  EXPECT_EQ(back.applied, status.applied);
  EXPECT_EQ(back.pending, status.pending);
  EXPECT_EQ(back.changes, status.changes);
  EXPECT_TRUE(back.has_state);
}

// A simulated step: ranks enter the barrier in some order, leave only when all have entered, and
// the group is lost at some moment; some ranks die.
TEST(AgreementProperty, SurvivorsReachOneStepAndKeepState) {
  std::mt19937 random(1);
  for (int round = 0; round < 2'000; ++round) {
    const uint32_t ranks = 1 + random() % 8;
    const uint32_t entered = random() % (ranks + 1);
    const uint32_t left = entered == ranks ? random() % (ranks + 1) : 0;
    std::vector<RankStatus> statuses;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      if (random() % 3 == 0 && (rank + 1 < ranks || !statuses.empty())) continue;  // dead
      statuses.push_back(rank < left ? at(8) : at(7, rank < entered));
    }
    bool any_applied = false;
    for (const RankStatus& status : statuses) any_applied |= status.applied == 8;
    const auto agreed = agree(statuses);
    ASSERT_TRUE(agreed.ok());
    EXPECT_EQ(agreed->step, any_applied ? 8u : 7u);
    for (size_t i = 0; i < statuses.size(); ++i) {
      EXPECT_TRUE(agreed->state[i]) << "no survivor loses its state";
      EXPECT_EQ(statuses[i].applied + (agreed->applies[i] ? 1 : 0), agreed->step);
    }
  }
}

}  // namespace
}  // namespace moetrain
