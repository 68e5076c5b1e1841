// The daemon restarts while a keeper holds its memory: what trainers can restore afterwards.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/job.h"
#include "tests/support/held_memory.h"

namespace ckptd::testing {
namespace {

using Steps = std::vector<ckpt::Step>;

class KeptMemoryTest : public ::testing::Test {
 protected:
  KeptMemoryTest() : world({.keeper = &memory}), job(world, 2) {
    EXPECT_TRUE(world.start().ok());
    job.start();
    job.commit(5);
    commit(10, {1, 2});
  }
  void commit(ckpt::Step step, const std::vector<ckpt::UnitId>& in_memory) {
    job.save(step, job.plan_in_memory(in_memory), fb::SnapshotLevel::Durable);
  }
  // Versions in the view of the step. Every byte is compared with the saved state.
  Steps steps(ckpt::Step step) {
    fb::OpenRestoreT request = job.whole(step);
    request.memory = true;
    const auto restored = job.ranks[0]->restore(request);
    EXPECT_EQ(restored.error, "");
    for (ckpt::UnitId unit = 0; restored.error.empty() && unit < job.model.size(); ++unit) {
      for (uint64_t i = 0; i < job.model[unit].bytes; ++i) {
        if (restored.bytes[unit][i] == state_byte(unit, restored.steps[unit], 0, i)) continue;
        ADD_FAILURE() << job.model[unit].name << " byte " << i;
        break;
      }
    }
    return restored.steps;
  }
  void reconnect() {
    for (auto& rank : job.ranks) ASSERT_TRUE(rank->reconnect()) << rank->error();
    world.run();
    job.listen();
  }

  HeldMemory memory;
  World world;
  Job job;
};

TEST_F(KeptMemoryTest, TheMemoryLevelSurvivesWithItsTrainers) {
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  EXPECT_EQ(world.metric("ckptd_memory_versions"), 2);
  EXPECT_GT(world.metric("ckptd_slabs{state=\"durable\"}"), 0)
      << "and what is on disk is in memory, too";
  reconnect();
  EXPECT_EQ(world.metric("ckptd_arena_bytes"), 2.0 * job.options.arena_bytes) << "each arena once";
  EXPECT_EQ(steps(10), (Steps{10, 10, 10, 10}));
  // Training continues as if the daemon had not restarted.
  commit(15, {0, 3});
  EXPECT_EQ(steps(15), (Steps{15, 15, 15, 15}));
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  reconnect();
  EXPECT_EQ(steps(15), (Steps{15, 15, 15, 15}));
}

TEST_F(KeptMemoryTest, TheMemoryLevelSurvivesWithoutItsTrainers) {
  for (auto& rank : job.ranks) rank->die();
  world.run();
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Continue);
  EXPECT_EQ(steps(10), (Steps{10, 10, 10, 10}));
}

TEST_F(KeptMemoryTest, CleanRestartKeepsMemoryLevel) {
  for (auto& rank : job.ranks) rank->die();
  world.run();
  world.stop();
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Continue);
  EXPECT_EQ(steps(10), (Steps{10, 10, 10, 10}));
}

// Snapshots in flight are handed back by their trainers, into the arena that was kept.
TEST_F(KeptMemoryTest, SnapshotInFlightContinuesAfterRestart) {
  job.begin(15, job.plan_in_memory({3}));
  job.fill(15);
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  reconnect();
  for (auto& rank : job.ranks) {
    ASSERT_EQ(rank->snapshot(15).level, fb::SnapshotLevel::Durable) << rank->snapshot(15).reason;
  }
  EXPECT_EQ(steps(15), (Steps{15, 15, 15, 15}));
  EXPECT_EQ(steps(10), (Steps{10, 5, 5, 10})) << "step 15 wrote units 1 and 2 to the disk";
}

// After a power loss the disk may lack commits that the held memory has.
TEST_F(KeptMemoryTest, VersionsOfMissingCommitsAreDropped) {
  world.kill_daemon();
  HeldMemory other_store = std::move(memory);
  memory.held.clear();
  World fresh({.keeper = &other_store});
  ASSERT_TRUE(fresh.start().ok());
  EXPECT_NE(fresh.daemon().metrics_text().find("ckptd_memory_versions 0\n"), std::string::npos);
  EXPECT_TRUE(other_store.held.empty()) << "it is let go";
}

}  // namespace
}  // namespace ckptd::testing
