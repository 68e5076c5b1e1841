// A catalog that cannot be written because the disk is full: it continues in memory, so that
// reading and deleting work. Once there is space again, nothing is lost.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::ElementsAre;
using namespace std::chrono_literals;

class CatalogOutageTest : public ::testing::Test {
 protected:
  CatalogOutageTest() : world({}), job(world, 2) {
    EXPECT_TRUE(world.start().ok());
    job.start();
    job.commit(5);
    world.catalog().set_full(true);
  }
  void advance_one_minute() {
    for (int i = 0; i < 300; ++i) world.tick(200ms);
  }
  World world;
  Job job;
};

TEST_F(CatalogOutageTest, CommitsContinueAndSurviveOutage) {
  for (const ckpt::Step step : {10, 15, 20}) {
    job.commit(step);
    advance_one_minute();
  }
  EXPECT_EQ(world.catalog().writes_when_closed(), 0u) << "RocksDB aborts on those";
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(20, 15, 10, 5)) << "from memory";
  job.expect_restores(*job.ranks[0], 20);
  world.catalog().set_full(false);
  advance_one_minute();
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(20, 15, 10, 5));
  job.expect_restores(*job.ranks[0], 15);
}

TEST_F(CatalogOutageTest, AnEpochResumesFromTheNewestCommit) {
  job.commit(10);
  job.join(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 10u);
  world.catalog().set_full(false);
  advance_one_minute();
  job.join(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 10u);
  job.commit(15);
}

TEST_F(CatalogOutageTest, RunRegisteredDuringOutageIsCreatedOnce) {
  Job other(world, 1, {.run = "other"});
  other.add_rank();  // a new run: only the journal and memory know it
  other.add_rank();  // it is known, not created again
  other.ranks.pop_back();
  world.catalog().set_full(false);
  advance_one_minute();
  other.join(fb::ResumeMode::Start);
  other.commit(5);
  FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  const auto rebuilt = root.query("rebuild", "");
  EXPECT_EQ(rebuilt.exit_code, 0) << rebuilt.json;
  EXPECT_THAT(job.log(*other.ranks[0]), ElementsAre(5));
  EXPECT_THAT(other.log(*other.ranks[0]), ElementsAre(5));
}

}  // namespace
}  // namespace ckptd::testing
