// Memory-only versions in a lineage that the survivors continue.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

TEST(MemoryElasticTest, SurvivorsKeepMemoryVersionsOfLostRanks) {
  World world({});
  ASSERT_TRUE(world.start().ok());
  FakeTrainer::Options options;
  options.elastic = true;
  Job job(world, 3, options);
  job.start();
  job.commit(5);
  job.save(10, job.plan_in_memory({1, 2, 3}), fb::SnapshotLevel::Durable);
  // Two membership changes: the versions survive both.
  for (int change = 0; change < 2; ++change) {
    job.ranks.back()->die();
    job.ranks.pop_back();
    world.run();
    job.join(fb::ResumeMode::GoOn);
    ASSERT_TRUE(job.ranks[0]->epoch().goes_on);
    fb::OpenRestoreT request = job.whole(10);
    request.memory = true;
    for (auto& rank : job.ranks) {
      const auto restored = rank->restore(request);
      EXPECT_EQ(restored.memory_only, (std::vector<bool>{false, true, true, true}));
      job.expect_bytes(restored, 10, 0);
    }
  }
  // The lineage ends with its last rank. The next lineage begins before that snapshot.
  job.ranks.back()->die();
  world.run();
  job.start(fb::ResumeMode::AtStep, 5);
  fb::OpenRestoreT request = job.whole(5);
  request.memory = true;
  EXPECT_EQ(job.ranks[0]->restore(request).memory_only, std::vector<bool>(4, false));
  EXPECT_THAT(world.daemon().metrics_text(), ::testing::HasSubstr("\nckptd_memory_versions 0\n"));
}

}  // namespace
}  // namespace ckptd::testing
