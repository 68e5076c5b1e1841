// Survivors continue while snapshots of the previous epoch are still being written. Only restores
// wait for those snapshots, and each snapshot ends as in its own epoch.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/held_syncs.h"
#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Three ranks with a commit of step 5.
class ElasticEpochTest : public ::testing::Test {
 protected:
  ElasticEpochTest() : disk(world.disk()), job(world, 3, elastic()) {
    world.set_door(&disk);
    EXPECT_TRUE(world.start().ok());
    job.start();
    job.commit(5);
  }
  ~ElasticEpochTest() override { world.kill_daemon(); }  // before its disk goes

  static FakeTrainer::Options elastic() {
    FakeTrainer::Options options;
    options.elastic = true;
    return options;
  }
  // The snapshot is staged in full, and the disk holds its syncs back.
  void stage(ckpt::Step step, const std::vector<ckpt::UnitId>& in_memory = {}) {
    disk.hold();
    job.save(step, job.plan_in_memory(in_memory), fb::SnapshotLevel::Staged);
    ASSERT_GT(disk.held(), 0u);
  }
  // The last rank dies. The survivors continue in a new epoch.
  void lose_last_rank() {
    const ckpt::Epoch before = job.ranks[0]->epoch().epoch;
    job.ranks.back()->die();
    job.ranks.pop_back();
    world.run();
    job.join(fb::ResumeMode::GoOn);
    for (auto& rank : job.ranks) {
      EXPECT_EQ(rank->epoch().epoch, before + 1);
      EXPECT_TRUE(rank->epoch().goes_on);
    }
  }
  // Kills the daemon, which loses state that is not durable. The same ranks reconnect.
  void restart() {
    world.set_door(nullptr);
    world.kill_daemon();
    ASSERT_TRUE(world.start().ok());
    for (auto& rank : job.ranks) ASSERT_TRUE(rank->reconnect());
    world.run();
  }
  void release() {
    disk.release();
    world.run();
    job.listen();
  }
  fb::OpenRestoreT newest(ckpt::Step step) {
    fb::OpenRestoreT request = job.whole(step);
    request.newest = true;
    request.memory = true;
    return request;
  }
  void expect_level(ckpt::Step step, fb::SnapshotLevel level) {
    for (auto& rank : job.ranks) {
      EXPECT_EQ(rank->snapshot(step).level, level) << rank->snapshot(step).reason << rank->error();
    }
  }

  World world{{}};
  HeldSyncs disk;
  Job job;
};

TEST_F(ElasticEpochTest, SurvivorsContinueWhileDiskIsBusy) {
  stage(10);
  lose_last_rank();
  // The next snapshot does not wait for the first.
  job.begin(15);
  job.fill(15);
  world.run();
  job.listen();
  expect_level(10, fb::SnapshotLevel::Staged);
  expect_level(15, fb::SnapshotLevel::Staged);
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(5));
  release();
  expect_level(10, fb::SnapshotLevel::Durable);
  expect_level(15, fb::SnapshotLevel::Durable);
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(15, 10, 5));
  // The fragments of the lost rank are there, too.
  job.expect_restores(*job.ranks[0], 10);
  job.expect_restores(*job.ranks[1], 15);
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("\nckptd_snapshots_failed_total 0\n"));
}

TEST_F(ElasticEpochTest, RestoreWaitsForStagedSnapshot) {
  stage(10, {1, 3});
  lose_last_rank();
  for (auto& rank : job.ranks) {
    rank->send(newest(12));
    world.run();
    EXPECT_FALSE(rank->take<fb::RestoreOpenedT>()) << "it would miss the newest versions";
    EXPECT_EQ(rank->error(), "");
  }
  // A session outside the group does not wait.
  FakeTrainer asker(world, FakeTrainer::Options());
  ASSERT_TRUE(asker.connect());
  job.expect_restores(asker, 5);
  release();
  for (auto& rank : job.ranks) {
    const auto opened = rank->take<fb::RestoreOpenedT>();
    ASSERT_TRUE(opened);
    for (const auto& unit : opened->units) EXPECT_EQ(unit->version_step, 10u);
    fb::CloseRestoreT close;
    close.restore = opened->restore;
    rank->send(std::move(close));
    world.run();
    EXPECT_TRUE(rank->take<fb::DoneT>());
    while (rank->take<fb::RestoreWindowT>()) continue;
    const auto restored = rank->restore(newest(12));
    EXPECT_THAT(restored.memory_only, ElementsAre(false, true, false, true));
    job.expect_bytes(restored, 10, 0);
  }
}

TEST_F(ElasticEpochTest, SecondLossFailsPendingRestore) {
  stage(10);
  lose_last_rank();
  job.ranks[0]->send(newest(12));
  world.run();
  job.ranks.back()->die();
  EXPECT_THAT(job.ranks[0]->error(), HasSubstr("epoch 2 has ended")) << "it waits in vain";
  job.ranks.pop_back();
  world.run();
  job.join(fb::ResumeMode::GoOn);
  EXPECT_EQ(job.ranks[0]->epoch().epoch, 3u);
  job.ranks[0]->send(newest(12));
  world.run();
  EXPECT_FALSE(job.ranks[0]->take<fb::RestoreOpenedT>());
  release();
  expect_level(10, fb::SnapshotLevel::Durable);
  const auto opened = job.ranks[0]->take<fb::RestoreOpenedT>();
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->units.front()->version_step, 10u);
}

TEST_F(ElasticEpochTest, FailedSnapshotIsReportedInNextEpoch) {
  stage(10);
  lose_last_rank();
  job.ranks[0]->send(newest(12));
  world.run();
  disk.fail();
  world.run();
  job.listen();
  expect_level(10, fb::SnapshotLevel::Failed);
  EXPECT_THAT(job.ranks[1]->snapshot(10).reason, HasSubstr("the sync failed"));
  const auto opened = job.ranks[0]->take<fb::RestoreOpenedT>();
  ASSERT_TRUE(opened);
  for (const auto& unit : opened->units) EXPECT_EQ(unit->version_step, 5u);
  job.commit(10, 1);  // the step is free
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(10, 5));
}

TEST_F(ElasticEpochTest, StepOfOpenSnapshotIsRefused) {
  stage(10);
  lose_last_rank();
  std::vector<FakeTrainer::Snapshot> staged;
  for (auto& rank : job.ranks) staged.push_back(rank->snapshot(10));
  job.begin(10, 1);
  for (auto& rank : job.ranks) {
    EXPECT_THAT(rank->error(), HasSubstr("attempt 0 of this step, of epoch 1, is still open"));
  }
  for (size_t i = 0; i < staged.size(); ++i) job.ranks[i]->snapshot(10) = staged[i];
  release();
  expect_level(10, fb::SnapshotLevel::Durable);
  job.expect_restores(*job.ranks[0], 10);
}

TEST_F(ElasticEpochTest, PartiallyStagedSnapshotAbortsOnRankLoss) {
  disk.hold();
  job.begin(10);
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(job.ranks[i]->fill(10));
  world.run();
  lose_last_rank();
  job.listen();
  expect_level(10, fb::SnapshotLevel::Failed);
  disk.release();
  job.commit(10, 1);
  job.expect_restores(*job.ranks[0], 10, 1);
}

TEST_F(ElasticEpochTest, NewGroupWaitsForStagedSnapshot) {
  stage(10);
  lose_last_rank();
  for (auto& rank : job.ranks) rank->die();
  world.run();
  job.ranks.clear();
  for (int i = 0; i < 3; ++i) job.add_rank();
  for (ckpt::Rank rank = 0; rank < 3; ++rank) {
    job.ranks[rank]->join(rank, 3, fb::ResumeMode::Continue);
  }
  world.run();
  EXPECT_FALSE(job.ranks[0]->started());
  disk.release();
  world.run();
  for (auto& rank : job.ranks) {
    ASSERT_TRUE(rank->started());
    EXPECT_FALSE(rank->epoch().goes_on);
    EXPECT_EQ(rank->epoch().resume_step, 10u);
  }
}

TEST_F(ElasticEpochTest, DaemonCrashLosesStagedSnapshot) {
  stage(10);
  lose_last_rank();
  restart();
  for (auto& rank : job.ranks) {
    EXPECT_THAT(rank->error(), HasSubstr("not a member of epoch 1"));
    rank->snapshots().clear();
    while (!rank->error().empty()) continue;  // drop the answers to its seals
  }
  job.commit(15);
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(15, 5));
}

TEST_F(ElasticEpochTest, ShrunkGroupNeedsNoReplacementAfterRestart) {
  lose_last_rank();
  restart();
  job.ranks.back()->die();
  job.ranks.pop_back();
  world.run();
  job.ranks[0]->join(0, 2, fb::ResumeMode::Continue);
  world.run();
  ASSERT_TRUE(job.ranks[0]->started()) << "the group had gone on: it needs no successor";
  EXPECT_EQ(job.ranks[0]->epoch().size, 1u);
  EXPECT_FALSE(job.ranks[0]->epoch().goes_on);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 5u);
}

TEST_F(ElasticEpochTest, ShrunkGroupThatRolledBackNeedsNoReplacement) {
  lose_last_rank();
  job.join(fb::ResumeMode::Continue);  // both return to the view of step 5
  ASSERT_FALSE(job.ranks[0]->epoch().goes_on);
  restart();
  job.ranks.back()->die();
  job.ranks.pop_back();
  world.run();
  job.ranks[0]->join(0, 2, fb::ResumeMode::Continue);
  world.run();
  ASSERT_TRUE(job.ranks[0]->started()) << "the group had gone on before it returned";
  EXPECT_EQ(job.ranks[0]->epoch().size, 1u);
}

TEST_F(ElasticEpochTest, FullGroupNeedsLostRankAfterRestart) {
  restart();
  job.ranks.back()->die();
  job.ranks.pop_back();
  world.run();
  for (ckpt::Rank rank = 0; rank < 2; ++rank) {
    job.ranks[rank]->join(rank, 3, fb::ResumeMode::Continue);
  }
  world.run();
  EXPECT_FALSE(job.ranks[0]->started());
}

TEST_F(ElasticEpochTest, RestartedDaemonReportsDurableSnapshot) {
  stage(10);
  lose_last_rank();
  disk.release();
  world.run();  // and no rank reads its messages
  restart();
  job.listen();
  expect_level(10, fb::SnapshotLevel::Durable);
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(10, 5));
}

}  // namespace
}  // namespace ckptd::testing
