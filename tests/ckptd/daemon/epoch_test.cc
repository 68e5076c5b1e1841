// Epochs and their one resume point.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EpochTest : public ::testing::Test {
 protected:
  EpochTest() : world({}) { EXPECT_TRUE(world.start().ok()); }
  // Joins with every rank and returns the error of the last one.
  std::string refused(Job& job, fb::ResumeMode resume, ckpt::Step step = 0) {
    for (ckpt::Rank rank = 0; rank < job.ranks.size(); ++rank) {
      job.ranks[rank]->join(rank, job.size, resume, step);
    }
    world.run();
    std::string error;
    for (auto& rank : job.ranks) error = rank->error();
    return error;
  }
  World world;
};

TEST_F(EpochTest, StartsFromNothing) {
  Job job(world, 2);
  job.start();
  for (auto& rank : job.ranks) {
    EXPECT_EQ(rank->epoch().epoch, 1u);
    EXPECT_EQ(rank->epoch().lineage, 1u);
    EXPECT_FALSE(rank->epoch().has_resume);
  }
}

TEST_F(EpochTest, ContinueResumesAtNewestCompleteView) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  job.commit(10);
  job.begin(15);
  job.ranks[1]->die();
  job.replace(1);
  job.join(fb::ResumeMode::Continue);
  EXPECT_EQ(job.ranks[0]->epoch().epoch, 2u);
  EXPECT_EQ(job.ranks[0]->epoch().lineage, 2u);
  EXPECT_TRUE(job.ranks[1]->epoch().has_resume);
  EXPECT_EQ(job.ranks[1]->epoch().resume_lineage, 1u);
  EXPECT_EQ(job.ranks[1]->epoch().resume_step, 10u);
}

TEST_F(EpochTest, ContinueWithoutCommitsStartsFromNothing) {
  Job job(world, 2);
  job.start();
  job.ranks[0]->die();
  job.replace(0);
  job.join(fb::ResumeMode::Continue);
  EXPECT_FALSE(job.ranks[0]->epoch().has_resume);
}

TEST_F(EpochTest, StartIsRefusedForRunWithCommits) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  EXPECT_THAT(refused(job, fb::ResumeMode::Start),
              AllOf(HasSubstr("run tiny"), HasSubstr("1 commit"), HasSubstr("step 5"),
                    HasSubstr("latest")));
  for (ckpt::Rank rank : {0, 1}) job.ranks[rank]->join(rank, 2, fb::ResumeMode::Start);
  world.run();
  const auto reply = job.ranks[0]->take<fb::ErrorReplyT>();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->detail, static_cast<int>(ckpt::ErrorDetail::kRunHasCommits));
}

TEST_F(EpochTest, LatestIsRefusedWithoutCommits) {
  Job job(world, 2);
  job.start();
  EXPECT_THAT(refused(job, fb::ResumeMode::Latest),
              HasSubstr("run tiny: it has no commit to resume from"));
}

TEST_F(EpochTest, AtStepErrorNamesNearestSteps) {
  Job job(world, 2);
  job.start();
  for (const ckpt::Step step : {5, 10, 20}) job.commit(step);
  EXPECT_THAT(refused(job, fb::ResumeMode::AtStep, 12),
              AllOf(HasSubstr("step 12"), HasSubstr("step 10 and step 20")));
  job.join(fb::ResumeMode::AtStep, 10);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 10u);
}

TEST_F(EpochTest, PartialCommitIsNoResumePoint) {
  Job job(world, 2);
  job.start();
  job.begin(3, job.plan({0, 2}));
  for (auto& rank : job.ranks) ASSERT_TRUE(rank->fill(3));
  world.run();
  EXPECT_THAT(refused(job, fb::ResumeMode::AtStep, 3), HasSubstr("not complete"));
}

TEST_F(EpochTest, AbandonedLineageNeverLeaksIntoView) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  job.commit(10, 1);
  job.join(fb::ResumeMode::AtStep, 5);
  job.commit(12, 2);
  // A partial commit in the new lineage: omitted units are of step 12, never of the abandoned 10.
  job.begin(13, job.plan({1}), /*salt=*/3);
  for (auto& rank : job.ranks) ASSERT_TRUE(rank->fill(13));
  world.run();
  const auto partial = job.ranks[0]->restore(job.whole(13));
  EXPECT_THAT(partial.steps, ElementsAre(12, 13, 12, 12));
  job.expect_restores(*job.ranks[0], 12, 2);
  auto old = job.whole(10);
  old.lineage = 1;
  job.expect_bytes(job.ranks[0]->restore(old), 10, 1);
  job.join(fb::ResumeMode::AtStep, 5);
  EXPECT_EQ(job.ranks[1]->epoch().lineage, 3u);
  EXPECT_EQ(job.ranks[1]->epoch().resume_lineage, 1u);
}

TEST_F(EpochTest, OpeningWaitsForStagedSnapshots) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  job.fill(5);  // staged, not written: the world did not run
  job.ranks[1]->die();
  job.replace(1);
  job.join(fb::ResumeMode::Continue);
  EXPECT_TRUE(job.ranks[0]->epoch().has_resume);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 5u)
      << "it was committed before the point was chosen";
}

TEST_F(EpochTest, RendezvousAnswersWhenTheKeyIsSet) {
  Job job(world, 2);
  job.start();
  fb::KvGetT get;
  get.epoch = 1;
  get.key = "address/0";
  const uint64_t request = job.ranks[1]->send(std::move(get));
  EXPECT_FALSE(job.ranks[1]->take<fb::KvValueT>().has_value());
  fb::KvSetT set;
  set.epoch = 1;
  set.key = "address/0";
  set.value = {1, 2, 3};
  job.ranks[0]->send(std::move(set));
  const auto value = job.ranks[1]->take<fb::KvValueT>();
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->request, request);
  EXPECT_THAT(value->value, ElementsAre(1, 2, 3));
}

TEST_F(EpochTest, LeavingMemberDoesNotEndEpoch) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  job.fill(5);
  job.ranks[0]->send(fb::LeaveGroupT());
  job.ranks[0]->die();
  world.run();
  job.ranks[1]->listen();
  EXPECT_FALSE(job.ranks[1]->epoch_ended());
  EXPECT_EQ(job.ranks[1]->snapshot(5).level, fb::SnapshotLevel::Durable);
}

TEST_F(EpochTest, RankLeavingDuringOpenEndsEpoch) {
  Job job(world, 2);
  job.add_rank();
  job.add_rank();
  for (ckpt::Rank rank : {0, 1}) job.ranks[rank]->join(rank, 2, fb::ResumeMode::Start);
  job.ranks[0]->send(fb::LeaveGroupT());  // the record of the epoch is being written
  ASSERT_TRUE(job.ranks[0]->take<fb::DoneT>().has_value());
  world.run();
  EXPECT_FALSE(job.ranks[0]->started());
  ASSERT_TRUE(job.ranks[1]->started());
  job.ranks[1]->listen();
  ASSERT_TRUE(job.ranks[1]->epoch_ended()) << "it would train with nobody";
  EXPECT_THAT(job.ranks[1]->ended().lost_ranks, ElementsAre(0));
  job.join(fb::ResumeMode::Continue);
  job.commit(5);
}

}  // namespace
}  // namespace ckptd::testing
