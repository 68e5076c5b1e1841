// Elastic groups: epochs in which survivors continue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ckptd/group/elastic_group.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::Rank;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(ElasticGroupTest, ContinuesOnceAllSurvivorsHaveAsked) {
  open_first();
  EXPECT_THAT(all<Groups::EndEpoch>(lost(1))[0].remaining, ElementsAre(100, 102, 103));
  join_survivor(3);
  join_survivor(0);
  EXPECT_EQ(opens.size(), 1u) << "member 2 has not asked";
  join_survivor(2);
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_TRUE(opens[1].survivors_continue);
  EXPECT_EQ(opens[1].epoch, 2u);
  EXPECT_EQ(opens[1].previous_size, 4u);
  EXPECT_THAT(members_of(opens[1]), ElementsAre(0, 2, 3));
  EXPECT_THAT(opens[1].previous_ranks, ElementsAre(0, 2, 3));
  opened();
  EXPECT_EQ(groups.member(103)->rank, 2u);
  EXPECT_EQ(groups.member(103)->size, 3u);
  EXPECT_EQ(groups.member(103)->lineage, 7u);
}

TEST_F(ElasticGroupTest, SurvivorLostBeforeAskingIsNotAwaited) {
  open_first();
  lost(1);
  join_survivor(0);
  join_survivor(3);
  lost(2);
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_THAT(members_of(opens[1]), ElementsAre(0, 3));
}

TEST_F(ElasticGroupTest, SurvivorLostAfterAskingIsNotInEpoch) {
  open_first();
  lost(1);
  join_survivor(0);
  join_survivor(2);
  lost(2);
  join_survivor(3);
  EXPECT_THAT(members_of(opens.back()), ElementsAre(0, 3));
}

TEST_F(ElasticGroupTest, SurvivorLostDuringOpenEndsTheEpoch) {
  open_first();
  lost(1);
  join_survivor(0);
  join_survivor(2);
  join_survivor(3);
  const auto actions = lost(2);
  EXPECT_TRUE(all<Groups::EndEpoch>(actions).empty() && all<Groups::OpenEpoch>(actions).empty());
  const auto ended = all<Groups::EndEpoch>(opened());
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].remaining, ElementsAre(100, 103));
  join_survivor(0);
  join_survivor(3);
  EXPECT_THAT(members_of(opens.back()), ElementsAre(0, 3));
  EXPECT_THAT(opens.back().previous_ranks, ElementsAre(0, 2)) << "of the epoch that just ended";
}

TEST_F(ElasticGroupTest, TimedOutSurvivorRejoinsWithoutState) {
  open_first();
  lost(1);
  join_survivor(0);
  join_survivor(3);
  note(groups.tick(milliseconds(50'000)));
  note(groups.tick(milliseconds(50'999)));
  EXPECT_EQ(opens.size(), 1u);
  note(groups.tick(milliseconds(51'000)));
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_THAT(members_of(opens[1]), ElementsAre(0, 3));
  EXPECT_THAT(opens[1].timed_out, HasSubstr("rank 2 of the last epoch did not ask"));
  opened();
  // The lost rank wakes up: its state is out of date.
  const auto waiting = all<Groups::JoinersWaiting>(join_survivor(2));
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_EQ(waiting[0].count, 1u);
  EXPECT_THAT(waiting[0].members, ElementsAre(100, 103));
  join_survivor(0);
  join_survivor(3);
  EXPECT_THAT(members_of(opens.back()), ElementsAre(0, 3, 2));
  EXPECT_THAT(opens.back().previous_ranks, ElementsAre(0, 1, -1));
}

TEST_F(ElasticGroupTest, JoinersWaitUntilAllMembersAsk) {
  open_first(2);
  EXPECT_EQ(all<Groups::JoinersWaiting>(join(5))[0].count, 1u);
  EXPECT_EQ(all<Groups::JoinersWaiting>(join(4))[0].count, 2u);
  EXPECT_EQ(opens.size(), 1u);
  const auto ended = all<Groups::EndEpoch>(join_survivor(1));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].lost, IsEmpty());
  EXPECT_EQ(opens.size(), 1u);
  join_survivor(0);
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_THAT(members_of(opens[1]), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(opens[1].previous_ranks, ElementsAre(0, 1, -1, -1));
}

TEST_F(ElasticGroupTest, JoinerDuringOpenIsReportedAfterwards) {
  open_first(2);
  lost(1);
  join_survivor(0);
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_THAT(join(5), IsEmpty());
  EXPECT_EQ(all<Groups::JoinersWaiting>(opened())[0].count, 1u);
}

TEST_F(ElasticGroupTest, GroupEndsWithItsLastSurvivor) {
  open_first(2);
  join(0 + 4, 2);
  lost(0);
  lost(1);
  EXPECT_EQ(opens.size(), 1u) << "a new group needs as many as it says";
  join(5, 2);
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_FALSE(opens[1].survivors_continue);
  EXPECT_EQ(opens[1].resume.resume, ResumeMode::kContinue);
}

TEST_F(ElasticGroupTest, SurvivorsOfEndedGroupResumeFromView) {
  for (MemberId member = 0; member < 2; ++member) {
    note(groups.join(kRun, request(member, ResumeMode::kKeepState, 2)));
  }
  ASSERT_EQ(opens.size(), 1u);
  EXPECT_FALSE(opens[0].survivors_continue);
  EXPECT_EQ(opens[0].resume.resume, ResumeMode::kContinue);
}

TEST_F(ElasticGroupTest, MemberThatLeftIsNoSurvivor) {
  open_first();
  EXPECT_TRUE(all<Groups::EndEpoch>(note(groups.leave(101))).empty());
  EXPECT_EQ(all<Groups::EndEpoch>(join_survivor(0)).size(), 1u);
  join_survivor(2);
  note(groups.leave(103));
  EXPECT_THAT(members_of(opens.back()), ElementsAre(0, 2));
}

TEST_F(ElasticGroupTest, FailedRecordLosesNoSurvivor) {
  open_first(2);
  lost(0);
  join_survivor(1);
  const auto refused =
      all<Groups::Refuse>(opened(ckpt::make_error(ErrorCode::kIo, "the journal is closed")));
  ASSERT_EQ(refused.size(), 1u);
  join_survivor(1);
  ASSERT_EQ(opens.size(), 3u);
  EXPECT_TRUE(opens[2].survivors_continue);
}

TEST_F(ElasticGroupTest, RefusesDuplicateMemberNumber) {
  for (const MemberId member : {MemberId{0}, MemberId{4}}) {
    JoinRequest duplicate = request(member, ResumeMode::kStart);
    duplicate.member = 9;
    duplicate.rank = static_cast<Rank>(member / 2);
    const auto refused = all<Groups::Refuse>(groups.join(kRun, duplicate));
    EXPECT_EQ(refused.size(), member == 0 ? 0u : 1u);
  }
  groups.lost(100, "done");
  open_first(2);
  JoinRequest duplicate = request(1, ResumeMode::kContinue);
  duplicate.session = 500;
  EXPECT_EQ(all<Groups::Refuse>(groups.join(kRun, duplicate)).size(), 1u) << "1 is there";
  duplicate.resume = ResumeMode::kKeepState;
  EXPECT_EQ(all<Groups::Refuse>(groups.join(kRun, duplicate)).size(), 1u);
  EXPECT_EQ(opens.size(), 1u);
}

TEST_F(ElasticGroupTest, PlainMembersCannotContinueOrJoinElasticGroup) {
  JoinRequest plain = request(0, ResumeMode::kKeepState);
  plain.elastic = false;
  EXPECT_EQ(all<Groups::Refuse>(groups.join(kRun, plain)).size(), 1u);
  groups.join(kRun, request(0, ResumeMode::kStart));
  JoinRequest other = request(1, ResumeMode::kStart);
  other.elastic = false;
  EXPECT_EQ(all<Groups::Refuse>(groups.join(kRun, other)).size(), 2u) << "all or none";
}

TEST_F(ElasticGroupTest, MemberThatJoinsAgainLosesItsState) {
  open_first(3);
  JoinRequest duplicate = request(1, ResumeMode::kContinue);
  duplicate.session = 500;
  const auto refused = all<Groups::Refuse>(groups.join(kRun, duplicate));
  ASSERT_EQ(refused.size(), 1u) << "only itself may";
  EXPECT_EQ(refused[0].error.code, ErrorCode::kAlreadyExists);
  const auto ended = all<Groups::EndEpoch>(join(1));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].lost, ElementsAre(1));
  EXPECT_THAT(ended[0].remaining, ElementsAre(100, 102));
  join_survivor(0);
  join_survivor(2);
  EXPECT_THAT(members_of(opens.back()), ElementsAre(0, 2, 1));
  EXPECT_THAT(opens.back().previous_ranks, ElementsAre(0, 2, -1));
}

// The joiner has no state before the group has trained.
TEST_F(ElasticGroupTest, JoinerWithoutStateRejoinsAfterLoss) {
  open_first(2);
  join(5);
  join_survivor(0);
  join_survivor(1);
  ASSERT_EQ(opens.size(), 2u);
  opened();
  lost(1);
  EXPECT_TRUE(all<Groups::Refuse>(join(5)).empty());
  EXPECT_EQ(opens.size(), 2u) << "member 0 has not asked";
  join_survivor(0);
  ASSERT_EQ(opens.size(), 3u);
  EXPECT_THAT(members_of(opens[2]), ElementsAre(0, 5));
  EXPECT_THAT(opens[2].previous_ranks, ElementsAre(0, -1));
}

TEST_F(ElasticGroupTest, EpochOpensWhenLastMemberAsks) {
  open_first(2);
  join(5);
  join_survivor(0);
  join_survivor(1);
  opened();
  lost(1);
  join_survivor(0);
  EXPECT_EQ(opens.size(), 2u) << "member 5 may have its state by now";
  join(5);
  ASSERT_EQ(opens.size(), 3u);
  EXPECT_THAT(members_of(opens[2]), ElementsAre(0, 5));
}

TEST_F(ElasticGroupTest, FirstEpochLostBeforeStateFormsAgain) {
  open_first(3);
  lost(1);
  EXPECT_TRUE(all<Groups::Refuse>(join(0, 3)).empty());
  EXPECT_TRUE(all<Groups::Refuse>(join(2, 3)).empty());
  EXPECT_EQ(opens.size(), 1u) << "a first epoch needs all its ranks";
  note(groups.join(kRun, request(1, ResumeMode::kStart, 3)));
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_FALSE(opens[1].survivors_continue);
  EXPECT_EQ(opens[1].resume.resume, ResumeMode::kStart);
  EXPECT_THAT(members_of(opens[1]), ElementsAre(0, 1, 2));
}

// The refused member has left the epoch to ask for the next: the others do not wait for it.
TEST_F(ElasticGroupTest, MemberWithRefusedJoinIsInNoEpoch) {
  open_first(3);
  JoinRequest taken = survivor_request(1);
  taken.member = 2;
  auto actions = note(groups.join(kRun, taken));
  ASSERT_EQ(all<Groups::Refuse>(actions).size(), 1u);
  auto ended = all<Groups::EndEpoch>(actions);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].lost, ElementsAre(1));
  EXPECT_THAT(ended[0].remaining, ElementsAre(100, 102));
  EXPECT_FALSE(groups.member(101)->active);
  // The same holds between two epochs.
  JoinRequest empty_group = survivor_request(2);
  empty_group.size = 0;
  EXPECT_EQ(all<Groups::Refuse>(note(groups.join(kRun, empty_group))).size(), 1u);
  join_survivor(0);
  EXPECT_THAT(members_of(opens.back()), ElementsAre(0));
}

TEST_F(ElasticGroupTest, JoinRefusedByDaemonEndsTheEpoch) {
  open_first(2);
  const auto ended = all<Groups::EndEpoch>(note(groups.refused(101)));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].remaining, ElementsAre(100));
  EXPECT_THAT(note(groups.refused(500)), IsEmpty()) << "one that nobody knows";
}

}  // namespace
}  // namespace ckptd
