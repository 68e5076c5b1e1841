// The daemon is restarted between the seals of a snapshot with units in memory and its commit.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

TEST(MemoryHandbackTest, ReopenedSnapshotKeepsItsMemoryUnits) {
  World world({});
  ASSERT_TRUE(world.start().ok());
  Job job(world, 2);
  job.start();
  job.commit(5);
  job.save(10, job.plan_in_memory({1, 2}), fb::SnapshotLevel::Durable);
  job.begin(15, job.plan_in_memory({1, 2}));
  job.fill(15);
  world.kill_daemon();  // step 10 is durable; step 15 is sealed on all ranks
  ASSERT_TRUE(world.start().ok());
  for (auto& rank : job.ranks) ASSERT_TRUE(rank->reconnect()) << rank->error();
  world.run();
  job.listen();
  for (auto& rank : job.ranks) {
    ASSERT_EQ(rank->snapshot(15).level, fb::SnapshotLevel::Durable) << rank->snapshot(15).reason;
  }
  fb::OpenRestoreT request = job.whole(15);
  request.memory = true;
  for (auto& rank : job.ranks) {
    const auto restored = rank->restore(request);
    EXPECT_EQ(restored.memory_only, (std::vector<bool>{false, true, true, false}));
    job.expect_bytes(restored, 15, 0);
  }
  // Memory-only versions of step 10 were lost with the last daemon.
  request.step = 10;
  EXPECT_EQ(job.ranks[0]->restore(request).steps, (std::vector<ckpt::Step>{10, 5, 5, 10}));
}

TEST(MemoryHandbackTest, SnapshotSurvivesMemberLostAfterSeal) {
  World world({});
  ASSERT_TRUE(world.start().ok());
  Job job(world, 2);
  job.start();
  job.commit(5);
  ckpt::Plan plan = job.plan(job.all_units());
  plan.memory_units = {3};
  for (auto& rank : job.ranks) rank->begin(10, plan);
  world.run();
  job.fill(10);
  job.ranks[1]->die();  // everything is sealed, nothing is written
  world.run();
  job.replace(1);
  job.join(fb::ResumeMode::Continue);
  ASSERT_EQ(job.ranks[0]->epoch().resume_step, 10u);
  fb::OpenRestoreT request = job.whole(10);
  request.memory = true;
  for (auto& rank : job.ranks) job.expect_bytes(rank->restore(request), 10, 0);
}

}  // namespace
}  // namespace ckptd::testing
