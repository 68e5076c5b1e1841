// Groups of jobs: one job trains a run at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckptd/group/group.h"
#include "tests/ckptd/group/actions.h"

namespace ckptd {
namespace {

using ckpt::Epoch;
using ckpt::ErrorCode;
using ckpt::Rank;
using ckpt::SessionId;
using testing::IsEmpty;

constexpr JobId kFirst = 11;
constexpr JobId kSecond = 22;

class GroupJobsTest : public testing::TestWithParam<bool> {
 protected:
  // The session of a job's rank.
  static SessionId session(JobId job, Rank rank) { return job * 100 + rank; }
  static JoinRequest request(JobId job, Rank rank, uint32_t size,
                             ResumeMode resume = ResumeMode::kStart) {
    return {.session = session(job, rank),
            .request = rank,
            .rank = rank,
            .size = size,
            .resume = resume,
            .elastic = GetParam(),
            .member = rank,
            .job = job};
  }
  Groups::Actions join(JobId job, Rank rank, uint32_t size) {
    return groups_.join(kRun, request(job, rank, size));
  }
  void open(JobId job, uint32_t size) {
    Epoch epoch = 0;
    for (Rank rank = 0; rank < size; ++rank) {
      const auto opens = all<Groups::OpenEpoch>(join(job, rank, size));
      if (!opens.empty()) epoch = opens[0].epoch;
    }
    ASSERT_NE(epoch, 0u);
    ASSERT_THAT(groups_.opened(kRun, epoch, 1, {}), IsEmpty());
  }
  // The second job's rank is refused, and nothing else happens.
  void expect_refused(Rank rank, uint32_t size) {
    const auto actions = join(kSecond, rank, size);
    ASSERT_EQ(actions.size(), 1u);
    const auto refused = all<Groups::Refuse>(actions);
    ASSERT_EQ(refused.size(), 1u);
    EXPECT_EQ(refused[0].session, session(kSecond, rank));
    EXPECT_EQ(refused[0].error.code, ErrorCode::kAlreadyExists);
    EXPECT_FALSE(groups_.wait(session(kSecond, rank)).has_value());
  }

  Groups groups_;
};

TEST_P(GroupJobsTest, RefusesRanksOfAnotherJob) {
  EXPECT_THAT(join(kFirst, 0, 2), IsEmpty());
  expect_refused(1, 2);
  expect_refused(0, 2);
  EXPECT_EQ(groups_.other_job(kRun, session(kSecond, 1), kSecond), session(kFirst, 0));
  const auto opens = all<Groups::OpenEpoch>(join(kFirst, 1, 2));
  ASSERT_EQ(opens.size(), 1u);
  expect_refused(1, 2);
  EXPECT_THAT(groups_.opened(kRun, opens[0].epoch, 1, {}), IsEmpty());
  expect_refused(2, 3);
  EXPECT_TRUE(groups_.member(session(kFirst, 0))->active);
}

TEST_P(GroupJobsTest, JobKeepsItsRunBetweenTwoEpochs) {
  open(kFirst, 2);
  (void)groups_.lost(session(kFirst, 1), "it died");
  expect_refused(1, 2);
  // A process that takes the lost one's place belongs to the same job.
  JoinRequest anew = request(kFirst, 1, 2, ResumeMode::kContinue);
  anew.session += 50;
  EXPECT_THAT(all<Groups::Refuse>(groups_.join(kRun, anew)), IsEmpty());
}

TEST_P(GroupJobsTest, RunIsFreeOnceAllMembersAreGone) {
  open(kFirst, 2);
  (void)groups_.leave(session(kFirst, 0));
  expect_refused(0, 2);
  (void)groups_.lost(session(kFirst, 1), "it was killed");
  open(kSecond, 2);
}

TEST_P(GroupJobsTest, WaitingJobEndsWithItsSession) {
  EXPECT_THAT(join(kFirst, 0, 2), IsEmpty());
  (void)groups_.lost(session(kFirst, 0), "it was killed");
  open(kSecond, 2);
}

TEST_P(GroupJobsTest, ClientsWithoutJobJoinAnyGroup) {
  open(kFirst, 1);
  JoinRequest older = request(0, 1, 2, ResumeMode::kContinue);
  EXPECT_THAT(all<Groups::Refuse>(groups_.join(kRun, older)), IsEmpty());
  (void)groups_.lost(session(kFirst, 0), "it died");
  EXPECT_THAT(join(kSecond, 0, 2), testing::Not(IsEmpty())) << "the two make a group";
}

TEST_P(GroupJobsTest, RejoinedMembersHoldTheRunForTheirJob) {
  const std::vector<MemberId> members =
      GetParam() ? std::vector<MemberId>{0, 1} : std::vector<MemberId>{};
  groups_.recovered(kRun, 5, 2, 1, members);
  ASSERT_TRUE(groups_.rejoin(kRun, session(kFirst, 0), 0, 5, kFirst).ok());
  expect_refused(1, 2);
  const auto other = groups_.rejoin(kRun, session(kSecond, 1), 1, 5, kSecond);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kAborted);
  EXPECT_TRUE(groups_.rejoin(kRun, session(kFirst, 1), 1, 5, kFirst).ok());
}

// Only an elastic group has survivors.
class SurvivorJobsTest : public GroupJobsTest {};

TEST_P(SurvivorJobsTest, SurvivorHoldsTheRunWithoutRejoining) {
  groups_.recovered(kRun, 5, 2, 1, {0, 1});
  EXPECT_THAT(
      all<Groups::Refuse>(groups_.join(kRun, request(kFirst, 0, 2, ResumeMode::kKeepState))),
      IsEmpty());
  expect_refused(1, 2);
}

INSTANTIATE_TEST_SUITE_P(Elastic, SurvivorJobsTest, testing::Values(true));
INSTANTIATE_TEST_SUITE_P(All, GroupJobsTest, testing::Bool(),
                         [](const auto& elastic) { return elastic.param ? "Elastic" : "Static"; });

}  // namespace
}  // namespace ckptd
