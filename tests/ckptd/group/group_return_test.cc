// Elastic groups whose members all drop their state and return to a view, while other processes
// wait to join.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ckptd/group/elastic_group.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::Rank;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

class GroupReturnTest : public ElasticGroupTest {
 protected:
  // Members 0, 2 and 3 train as ranks 0, 1 and 2 of epoch 2: member 1 is lost.
  void open_without_one() {
    open_first();
    lost(1);
    for (const MemberId member : {0, 2, 3}) join_survivor(member);
    ASSERT_EQ(opens.size(), 2u);
    EXPECT_TRUE(opened().empty());
  }
  Groups::Actions returns(MemberId member, Rank rank, uint32_t size = 3,
                          ResumeMode resume = ResumeMode::kContinue) {
    JoinRequest asked = request(member, resume, size);
    asked.rank = rank;
    asked.resume_step = resume == ResumeMode::kAtStep ? 8 : 0;
    return keep_refusals(note(groups.join(kRun, asked)));
  }
  Groups::Actions joins(MemberId member, uint32_t size = 4) {
    return keep_refusals(join(member, size));
  }
  Groups::Actions keep_refusals(Groups::Actions actions) {
    for (const auto& refused : all<Groups::Refuse>(actions)) refusals.push_back(refused);
    return actions;
  }
  // The newest epoch is one of these members, from a view.
  void expect_returned(const std::vector<MemberId>& members) {
    ASSERT_EQ(opens.size(), 3u);
    EXPECT_FALSE(opens[2].survivors_continue);
    EXPECT_TRUE(opens[2].elastic);
    EXPECT_EQ(members_of(opens[2]), members);
    for (size_t rank = 0; rank < members.size(); ++rank) {
      EXPECT_EQ(opens[2].members[rank].rank, rank);
      EXPECT_EQ(opens[2].members[rank].size, members.size());
    }
    EXPECT_THAT(refusals, IsEmpty());
  }
  std::vector<Groups::Refuse> refusals;
};

TEST_F(GroupReturnTest, ReturnRecordsThatTheGroupHadContinued) {
  open_without_one();
  EXPECT_FALSE(opens[0].survivors_had_continued) << "the first epoch";
  returns(0, 0);
  returns(2, 1);
  returns(3, 2);
  expect_returned({0, 2, 3});
  EXPECT_TRUE(opens[2].survivors_had_continued);
}

TEST_F(GroupReturnTest, JoinersWaitUntilFormerMembersHaveReturned) {
  open_without_one();
  joins(5);
  EXPECT_EQ(all<Groups::EndEpoch>(returns(2, 1)).size(), 1u);
  returns(0, 0);
  EXPECT_EQ(opens.size(), 2u) << "member 3 has not asked";
  returns(3, 2);
  expect_returned({0, 2, 3});
  const auto waiting = all<Groups::JoinersWaiting>(opened());
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_EQ(waiting[0].count, 1u);
  for (const MemberId member : {0, 2, 3}) join_survivor(member);
  EXPECT_THAT(members_of(opens.back()), ElementsAre(0, 2, 3, 5));
  EXPECT_THAT(opens.back().previous_ranks, ElementsAre(0, 1, 2, -1));
}

TEST_F(GroupReturnTest, JoinerOfSameSizeTakesNoFormerPlace) {
  open_without_one();
  joins(4, 3);
  returns(0, 0);
  returns(3, 2);
  joins(7, 3);
  returns(2, 1);
  expect_returned({0, 2, 3});
  EXPECT_EQ(all<Groups::JoinersWaiting>(opened())[0].count, 2u);
}

TEST_F(GroupReturnTest, JoinerDuringReturnJoinsAfterwards) {
  open_without_one();
  returns(0, 0);
  returns(2, 1);
  joins(5);
  returns(3, 2);
  joins(6);
  expect_returned({0, 2, 3});
  EXPECT_EQ(all<Groups::JoinersWaiting>(opened())[0].count, 2u);
}

TEST_F(GroupReturnTest, JoinerLostWhileWaitingIsForgotten) {
  open_without_one();
  joins(5);
  returns(0, 0);
  returns(2, 1);
  lost(5);
  returns(3, 2);
  expect_returned({0, 2, 3});
  EXPECT_THAT(opened(), IsEmpty());
}

TEST_F(GroupReturnTest, ViewNamedByOneMemberIsResumePoint) {
  open_without_one();
  joins(5);
  returns(0, 0);
  returns(2, 1, 3, ResumeMode::kAtStep);
  returns(3, 2);
  expect_returned({0, 2, 3});
  EXPECT_EQ(opens[2].resume.resume, ResumeMode::kAtStep);
  EXPECT_EQ(opens[2].resume.resume_step, 8u);
}

TEST_F(GroupReturnTest, MemberLostBeforeAskingIsNotAwaited) {
  open_without_one();
  joins(5);
  returns(2, 1);
  returns(3, 2);
  lost(0);
  expect_returned({2, 3});
}

TEST_F(GroupReturnTest, MemberLostAfterAskingIsNotAwaited) {
  open_without_one();
  joins(5);
  returns(0, 0);
  returns(2, 1);
  lost(2);
  returns(3, 2);
  expect_returned({0, 3});
}

TEST_F(GroupReturnTest, MemberLostDuringOpenEndsTheEpoch) {
  open_without_one();
  for (const Rank rank : {0u, 1u, 2u}) returns(rank == 0 ? 0 : rank + 1, rank);
  lost(2);
  EXPECT_EQ(all<Groups::EndEpoch>(opened()).size(), 1u);
  returns(0, 0);
  returns(3, 2);
  EXPECT_THAT(members_of(opens.back()), ElementsAre(0, 3)) << "the group has gone on before";
}

TEST_F(GroupReturnTest, MemberThatDoesNotAskTimesOut) {
  open_without_one();
  joins(5);
  returns(0, 0);
  returns(3, 2);
  note(groups.tick(milliseconds(0)));
  EXPECT_THAT(groups.wait(100)->missing, ElementsAre(1)) << "the rank that has not asked";
  note(groups.tick(kGrace - milliseconds(1)));
  EXPECT_EQ(opens.size(), 2u);
  note(groups.tick(kGrace));
  expect_returned({0, 3});
}

TEST_F(GroupReturnTest, JoinersFormGroupIfNoFormerMemberReturns) {
  open_without_one();
  for (const MemberId member : {4, 5, 6, 7}) joins(member);
  lost(0);
  returns(2, 1);
  lost(2);
  note(groups.tick(milliseconds(0)));
  EXPECT_EQ(opens.size(), 2u) << "member 3 may still ask";
  note(groups.tick(kGrace));
  expect_returned({4, 5, 6, 7});
}

TEST_F(GroupReturnTest, MemberWithStateContinuesWithAllOthers) {
  open_without_one();
  joins(5);
  returns(0, 0);
  returns(3, 2);
  keep_refusals(join_survivor(2));
  ASSERT_EQ(opens.size(), 3u);
  EXPECT_TRUE(opens[2].survivors_continue);
  EXPECT_THAT(members_of(opens[2]), ElementsAre(2, 0, 3, 5));
  EXPECT_THAT(refusals, IsEmpty());
}

// A group that has not trained yet: the lost rank is started again.
TEST_F(GroupReturnTest, FirstEpochFormsAgainWhileJoinersWait) {
  open_first(3);
  joins(5, 3);
  joins(8, 4);
  lost(1);
  returns(0, 0);
  returns(2, 2);
  EXPECT_EQ(opens.size(), 1u) << "a first epoch needs all its ranks";
  joins(9, 4);
  EXPECT_EQ(opens.size(), 1u) << "neither rank 2 nor a group of 4 is free";
  joins(1, 3);
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_THAT(members_of(opens[1]), ElementsAre(0, 1, 2));
  EXPECT_THAT(refusals, IsEmpty());
  EXPECT_EQ(all<Groups::JoinersWaiting>(opened())[0].count, 3u);
}

TEST_F(GroupReturnTest, RankRestartedEarlyFillsItsPlace) {
  open_first(3);
  lost(1);
  joins(8, 4);
  joins(1, 3);
  returns(0, 0);
  EXPECT_EQ(opens.size(), 1u) << "member 2 has not asked";
  returns(2, 2);
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_THAT(members_of(opens[1]), ElementsAre(0, 1, 2));
  EXPECT_THAT(refusals, IsEmpty());
}

TEST_F(GroupReturnTest, FormerMembersThatRetryPrecedeJoiners) {
  open_without_one();
  joins(5, 3);
  for (const Rank rank : {0u, 1u, 2u}) returns(rank == 0 ? 0 : rank + 1, rank);
  EXPECT_EQ(all<Groups::Refuse>(opened(ckpt::make_error(ErrorCode::kIo, "disk full"))).size(), 3u);
  for (const Rank rank : {0u, 1u, 2u}) returns(rank == 0 ? 0 : rank + 1, rank);
  ASSERT_EQ(opens.size(), 4u);
  EXPECT_THAT(members_of(opens[3]), ElementsAre(0, 2, 3));
  EXPECT_THAT(refusals, IsEmpty());
  EXPECT_EQ(all<Groups::JoinersWaiting>(opened())[0].count, 1u);
}

// The record could not be written, and then a member died.
TEST_F(GroupReturnTest, MemberLostAfterRefusalIsNotAwaited) {
  open_without_one();
  joins(5, 3);
  for (const Rank rank : {0u, 1u, 2u}) returns(rank == 0 ? 0 : rank + 1, rank);
  EXPECT_EQ(all<Groups::Refuse>(opened(ckpt::make_error(ErrorCode::kIo, "disk full"))).size(), 3u);
  returns(0, 0);
  lost(2);
  EXPECT_EQ(opens.size(), 3u) << "member 3 has not asked";
  returns(3, 2);
  ASSERT_EQ(opens.size(), 4u);
  EXPECT_THAT(members_of(opens[3]), ElementsAre(0, 3));
  EXPECT_THAT(refusals, IsEmpty());
}

TEST_F(GroupReturnTest, MemberThatAsksLateContinuesAlone) {
  open_without_one();
  lost(0);
  lost(2);
  note(groups.tick(milliseconds(0)));
  note(groups.tick(kGrace));
  returns(3, 2);
  expect_returned({3});
}

TEST_F(GroupReturnTest, HungMemberHoldsNoPlaceAfterGrace) {
  open_first(3);
  lost(1);
  joins(4, 3);
  joins(5, 3);
  returns(0, 0);
  note(groups.tick(milliseconds(0)));
  note(groups.tick(kGrace - milliseconds(1)));
  EXPECT_EQ(opens.size(), 1u) << "member 2 may still ask";
  note(groups.tick(kGrace));
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_THAT(members_of(opens[1]), ElementsAre(0, 4, 5));
}

TEST_F(GroupReturnTest, JoinersThatDisagreeRefuseNoFormerMember) {
  open_first(4);
  lost(1);
  lost(2);
  keep_refusals(note(groups.join(kRun, request(5, ResumeMode::kLatest))));
  keep_refusals(note(groups.join(kRun, request(6, ResumeMode::kStart))));
  returns(0, 0, 4);
  returns(3, 3, 4);
  EXPECT_EQ(opens.size(), 1u) << "members 5 and 6 do not agree";
  joins(10, 4);
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_THAT(members_of(opens[1]), ElementsAre(0, 5, 10, 3));
  EXPECT_THAT(refusals, IsEmpty());
}

TEST_F(GroupReturnTest, RefusesDuplicateOfReturningMember) {
  open_without_one();
  returns(0, 0);
  JoinRequest second = request(0, ResumeMode::kContinue);
  second.session = 900;
  keep_refusals(note(groups.join(kRun, second)));
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].session, 900u);
  EXPECT_EQ(refusals[0].error.code, ErrorCode::kAlreadyExists);
  returns(2, 1);
  returns(3, 2);
  keep_refusals(note(groups.join(kRun, second)));
  EXPECT_EQ(refusals.size(), 2u) << "member 0 will be in the epoch that opens";
  refusals.clear();
  expect_returned({0, 2, 3});
}

TEST_F(GroupReturnTest, ExcessJoinersJoinTheNextEpoch) {
  open_first(2);
  for (const MemberId member : {2, 3, 4}) joins(member, 2);
  lost(0);
  lost(1);
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_THAT(members_of(opens[1]), ElementsAre(2, 3));
  const auto waiting = all<Groups::JoinersWaiting>(opened());
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_EQ(waiting[0].count, 1u);
  join_survivor(2);
  join_survivor(3);
  EXPECT_THAT(members_of(opens.back()), ElementsAre(2, 3, 4));
}

}  // namespace
}  // namespace ckptd
