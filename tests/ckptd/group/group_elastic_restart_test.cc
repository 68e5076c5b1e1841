// Elastic groups after a restart of the daemon: who rejoins, who is awaited, and for how long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckptd/limits.h"
#include "tests/ckptd/group/elastic_group.h"

namespace ckptd {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

class ElasticRestartTest : public ElasticGroupTest {
 protected:
  // All members of the last epoch come back, one dies, and the others return to a view.
  void lose_one_after_a_restart(bool survivors_continued) {
    const std::vector<MemberId> members = {10, 12, 13};
    groups.recovered(kRun, 7, 3, 2, members, survivors_continued);
    for (ckpt::Rank rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(groups.rejoin(kRun, 100 + members[rank], rank, 7).ok());
    }
    EXPECT_EQ(all<Groups::EndEpoch>(lost(12)).size(), 1u);
    for (const ckpt::Rank rank : {0u, 2u}) {
      JoinRequest asked = request(members[rank], ResumeMode::kContinue, 3);
      asked.rank = rank;
      EXPECT_TRUE(all<Groups::Refuse>(note(groups.join(kRun, asked))).empty());
    }
  }
};

TEST_F(ElasticRestartTest, SurvivorsContinueAfterDaemonRestart) {
  groups.recovered(kRun, 7, 3, 2, {10, 11, 12});
  ASSERT_TRUE(groups.rejoin(kRun, 110, 0, 7).ok());
  const auto ended = all<Groups::EndEpoch>(join_survivor(11));
  ASSERT_EQ(ended.size(), 1u) << "it had asked before the restart, or asks now";
  EXPECT_THAT(ended[0].remaining, ElementsAre(110));
  join_survivor(10);
  EXPECT_TRUE(opens.empty()) << "member 12 may be on its way";
  note(groups.tick(milliseconds(0)));
  note(groups.tick(kGrace - milliseconds(1)));
  EXPECT_TRUE(opens.empty());
  note(groups.tick(kGrace));
  ASSERT_EQ(opens.size(), 1u) << "as long as those who ask have said";
  EXPECT_EQ(opens[0].epoch, 8u);
  EXPECT_THAT(members_of(opens[0]), ElementsAre(10, 11));
}

TEST_F(ElasticRestartTest, DefaultGraceAppliesUntilFirstSurvivorAsks) {
  groups.recovered(kRun, 7, 3, 2, {10, 11, 12});
  ASSERT_TRUE(groups.rejoin(kRun, 110, 0, 7).ok());
  ASSERT_TRUE(groups.rejoin(kRun, 111, 1, 7).ok());
  note(groups.rejoin_deadline_passed());
  note(groups.tick(milliseconds(0)));
  note(groups.tick(kGrace));
  EXPECT_TRUE(all<Groups::Refuse>(join_survivor(10)).empty()) << "it was not given up";
  note(groups.tick(kGrace));
  ASSERT_EQ(opens.size(), 1u);
  EXPECT_THAT(members_of(opens[0]), ElementsAre(10));
  EXPECT_TRUE(opens[0].survivors_continue);
}

TEST_F(ElasticRestartTest, FullRestartReusesMemberNumbers) {
  groups.recovered(kRun, 7, 2, 2, {0, 1});
  for (MemberId member = 0; member < 2; ++member) {
    note(groups.join(kRun, request(member, ResumeMode::kLatest, 2)));
  }
  ASSERT_EQ(opens.size(), 1u) << "without a wait for those that were replaced";
  EXPECT_FALSE(opens[0].survivors_continue);
  EXPECT_EQ(opens[0].resume.resume, ResumeMode::kLatest);
}

TEST_F(ElasticRestartTest, NewJobWaitsForNoMemberBeforeRestart) {
  groups.recovered(kRun, 7, 4, 2, {0, 1, 2, 3});
  const auto ended =
      all<Groups::EndEpoch>(note(groups.join(kRun, request(0, ResumeMode::kLatest, 1))));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].lost, ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(opens.size(), 1u) << "it is smaller: some numbers do not come again";
  EXPECT_FALSE(opens[0].survivors_continue);
  EXPECT_THAT(members_of(opens[0]), ElementsAre(0));
}

TEST_F(ElasticRestartTest, JobWithRejoinedMemberContinues) {
  groups.recovered(kRun, 7, 2, 2, {0, 1});
  ASSERT_TRUE(groups.rejoin(kRun, 100, 0, 7).ok());
  JoinRequest other = request(1, ResumeMode::kLatest, 1);
  note(groups.join(kRun, other));
  EXPECT_TRUE(opens.empty()) << "member 0 is there, and has not asked";
  join_survivor(0);
  ASSERT_EQ(opens.size(), 1u);
  EXPECT_TRUE(opens[0].survivors_continue);
}

TEST_F(ElasticRestartTest, ContinuedGroupNeedsNoLostRank) {
  lose_one_after_a_restart(/*survivors_continued=*/true);
  ASSERT_EQ(opens.size(), 1u);
  EXPECT_FALSE(opens[0].survivors_continue);
  EXPECT_THAT(members_of(opens[0]), ElementsAre(10, 13));
  EXPECT_EQ(opens[0].members[1].rank, 1u);
}

TEST_F(ElasticRestartTest, FirstEpochNeedsItsLostRank) {
  lose_one_after_a_restart(/*survivors_continued=*/false);
  EXPECT_TRUE(opens.empty());
}

TEST_F(ElasticRestartTest, RejoinDeadlineKeepsRejoinedMembers) {
  groups.recovered(kRun, 7, 3, 2, {10, 11, 12});
  ASSERT_TRUE(groups.rejoin(kRun, 111, 1, 7).ok());
  EXPECT_THAT(all<Groups::EndEpoch>(note(groups.rejoin_deadline_passed()))[0].lost,
              ElementsAre(0, 2));
  join_survivor(11);
  EXPECT_THAT(members_of(opens.back()), ElementsAre(11));
  EXPECT_THAT(opens.back().previous_ranks, ElementsAre(1));
}

}  // namespace
}  // namespace ckptd
