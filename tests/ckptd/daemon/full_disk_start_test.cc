// ckptd starts on a disk without a free byte: reads and deletions work, and nothing is discarded.
// Once there is space, new commits work again.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/job.h"
#include "tests/ckptd/daemon/store_files.h"

namespace ckptd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr uint64_t kRoom = 16ull << 30;

class FullDiskStartTest : public ::testing::Test {
 protected:
  FullDiskStartTest() : world({}), job(world, 2) {
    EXPECT_TRUE(world.start().ok());
    job.start();
    for (const ckpt::Step step : {5, 10, 15}) job.commit(step);
    world.kill_daemon();
    world.disk().set_capacity(0);
    world.catalog().set_full(true);
  }
  FakeTrainer& root() {
    root_ = std::make_unique<FakeTrainer>(
        world, FakeTrainer::Options{.uid = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(root_->connect());
    return *root_;
  }
  // Bytes that are used on the disk.
  uint64_t used() {
    world.disk().set_capacity(kRoom);
    const Disk::Space space = world.disk().space().value();
    world.disk().set_capacity(0);
    return space.total_bytes - space.free_bytes;
  }
  // Damages the record of step 15 at the end of the journal. No catalog has the record.
  void lose_last_commit() {
    world.disk().flip(kJournalPath, journal_end(world.disk()) - ckpt::kBlockBytes + 200);
    world.lose_catalog();
    world.catalog().set_full(true);
  }
  std::vector<std::string> journal_files() { return world.disk().list(kJournalDirectory).value(); }
  void free_disk_space() {
    world.disk().set_capacity(kRoom);
    world.catalog().set_full(false);
    for (int i = 0; i < 60; ++i) world.tick(1s);
    world.run();
  }
  World world;
  Job job;
  std::unique_ptr<FakeTrainer> root_;
};

// Regression: the start failed with "no space left".
TEST_F(FullDiskStartTest, CommitsAreListedVerifiedAndRestored) {
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(job.log(root()), ElementsAre(15, 10, 5));
  EXPECT_EQ(root().query("verify", "{}").exit_code, 0);
  job.expect_restores(root(), 10);
}

TEST_F(FullDiskStartTest, PruneFreesSpace) {
  ASSERT_TRUE(world.start().ok());
  const uint64_t before = used();
  const auto pruned = root().query("prune", R"({"target": "tiny", "rules": {"last": 1}})");
  EXPECT_EQ(pruned.exit_code, 0) << pruned.json;
  world.run();
  EXPECT_THAT(job.log(root()), ElementsAre(15));
  const auto freed = root().query("gc", "{}");
  EXPECT_EQ(freed.exit_code, 0) << freed.json;
  EXPECT_LT(used(), before) << "two of three commits are gone";
  // The prune is durable: the next start, with the older catalog on disk, finds it.
  world.kill_daemon();
  world.catalog().set_full(false);
  world.disk().set_capacity(kRoom);
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(job.log(root()), ElementsAre(15));
  job.expect_restores(root(), 15);
}

// Regression: the start was refused, and each attempt could leave another file.
TEST_F(FullDiskStartTest, TornJournalTailNeedsNoSpace) {
  lose_last_commit();
  for (int i = 0; i < 2; ++i) {
    const Status started = world.start();
    ASSERT_TRUE(started.ok()) << started.error().message;
    EXPECT_THAT(job.log(root()), ElementsAre(10, 5));
    EXPECT_THAT(journal_files(), ElementsAre("journal.log"));
    world.kill_daemon();
  }
}

TEST_F(FullDiskStartTest, TornJournalTailIsSavedInFreedSpace) {
  lose_last_commit();
  world.disk().set_capacity(used());
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(job.log(root()), ElementsAre(10, 5));
  EXPECT_THAT(journal_files(), ElementsAre("journal.log", HasSubstr("lost-")));
}

TEST_F(FullDiskStartTest, ARunIsRemoved) {
  ASSERT_TRUE(world.start().ok());
  for (int i = 0; i < 40; ++i) world.tick(1s);  // past the time in which ranks may rejoin
  const auto removed = root().query("rm", R"({"target": "tiny"})");
  EXPECT_EQ(removed.exit_code, 0) << removed.json;
  EXPECT_EQ(root().query("runs", "{}").json, "[]");
}

TEST_F(FullDiskStartTest, CatalogReturnsToDisk) {
  ASSERT_TRUE(world.start().ok());
  const auto log = root().query("log", R"({"target": "tiny"})").json;
  const size_t batches = world.catalog().batches();
  free_disk_space();
  EXPECT_GT(world.catalog().batches(), batches) << "it follows the journal again";
  EXPECT_EQ(root().query("log", R"({"target": "tiny"})").json, log);
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 15u);
  job.commit(20);
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(job.log(root()), ElementsAre(20, 15, 10, 5));
}

}  // namespace
}  // namespace ckptd::testing
