// A catalog kept in memory returns to the disk. The catalog on the disk is used only if it belongs
// to this journal, and the one in memory stays until the disk has every record.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/saved_run_fixture.h"
#include "tests/ckptd/daemon/store_files.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using namespace std::chrono_literals;

const ckpt::Error kFull =
    ckpt::make_error(ckpt::ErrorCode::kResourceExhausted, "catalog: no space left on device");

class CatalogReturnTest : public SavedRunTest {
 protected:
  uint64_t journal_bytes() {
    const FileId file = world.disk().open(kJournalPath, {}).value();
    const auto scan =
        scan_journal_file(world.disk(), file, [](uint64_t, const auto&) { return Status(); });
    world.disk().close(file);
    return scan.value().end.offset;
  }
  // The daemon ends, and the journal loses what lies behind the offset.
  void end_and_cut_journal(uint64_t end) {
    world.kill_daemon();
    truncate_file(world.disk(), kJournalPath, end);
  }
  void advance(std::chrono::seconds time) {
    for (auto passed = 0s; passed < time; passed += 1s) world.tick(1s);
    world.run();
  }
  std::vector<ckpt::Step> listed() { return job.log(root()); }
  std::vector<std::string> journal_files() { return world.disk().list(kJournalDirectory).value(); }
};

// Regression: the catalog of the damaged journal was used again once there was room. Commits with
// new record numbers were applied twice, and their extents reclaimed.
TEST_F(CatalogReturnTest, SalvageWaitsForSpaceForNewCatalog) {
  const uint64_t last = journal_bytes();
  job.commit(15);
  end_and_cut_journal(last);
  world.catalog().set_full(true);
  const Status started = world.start();
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ckpt::ErrorCode::kResourceExhausted);
  EXPECT_THAT(journal_files(), AllOf(Contains("salvaged.log"), Contains("journal.log")));
  EXPECT_FALSE(world.start().ok()) << "nor by the next start";
  world.catalog().set_full(false);
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(listed(), ElementsAre(15, 10, 5));
  EXPECT_THAT(journal_files(), Not(Contains("salvaged.log")));
  job.start(fb::ResumeMode::Latest);
  job.expect_restores(*job.ranks[0], 15);
}

// Regression: the start did not notice a catalog ahead of the journal, and used it later.
TEST_F(CatalogReturnTest, CatalogAheadOfJournalIsNotUsed) {
  const uint64_t last = journal_bytes();
  job.commit(15);
  end_and_cut_journal(last);
  world.catalog().set_open(kFull);
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Latest);
  job.commit(20);
  EXPECT_THAT(listed(), ElementsAre(20, 10, 5));
  world.catalog().set_open({});
  const size_t batches = world.catalog().batches();
  advance(30s);
  EXPECT_GT(world.catalog().batches(), batches) << "it is on disk again";
  EXPECT_THAT(listed(), ElementsAre(20, 10, 5));
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(listed(), ElementsAre(20, 10, 5));
}

// The same for a lost tail that holds only a lineage.
TEST_F(CatalogReturnTest, CatalogWithLostLineageIsNotUsed) {
  const uint64_t last = journal_bytes();
  job.join(fb::ResumeMode::AtStep, 5);
  end_and_cut_journal(last);
  world.catalog().set_open(kFull);
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Latest);
  job.commit(20);
  world.catalog().set_open({});
  advance(30s);
  EXPECT_THAT(listed(), ElementsAre(20, 10, 5));
  job.expect_restores(*job.ranks[0], 10);
}

// Regression: if the disk had no space to open the catalog, the start took the catalog for missing:
// exit 4 and the advice to truncate the journal.
TEST_F(CatalogReturnTest, DamagedJournalWaitsForSpaceForCatalog) {
  const uint64_t last = journal_bytes();
  job.commit(15);
  job.commit(20);
  world.kill_daemon();
  world.disk().flip(kJournalPath, last + 200);
  world.catalog().set_open(kFull);
  const Status started = world.start();
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ckpt::ErrorCode::kResourceExhausted);
  EXPECT_THAT(started.error().message, AllOf(HasSubstr("no room"), Not(HasSubstr("truncate"))));
  world.catalog().set_open({});
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(listed(), ElementsAre(20, 15, 10, 5));
}

// Regression: the catalog in memory was dropped before the one on disk could be read.
TEST_F(CatalogReturnTest, ShortageKeepsCatalogInMemory) {
  world.catalog().set_full(true);
  job.commit(15);
  advance(2s);
  world.catalog().set_full(false);
  world.catalog().set_reads(ckpt::make_error(ckpt::ErrorCode::kUnavailable, "no descriptors"));
  const size_t batches = world.catalog().batches();
  advance(60s);
  EXPECT_THAT(listed(), ElementsAre(15, 10, 5));
  job.expect_restores(*job.ranks[0], 15);
  EXPECT_EQ(world.catalog().batches(), batches) << "a shortage empties nothing";
  world.catalog().set_reads({});
  advance(120s);
  EXPECT_GT(world.catalog().batches(), batches);
  EXPECT_THAT(listed(), ElementsAre(15, 10, 5));
}

TEST_F(CatalogReturnTest, DamagedCatalogOnDiskIsReplaced) {
  world.catalog().set_full(true);
  job.commit(15);
  advance(2s);
  world.catalog().set_full(false);
  world.catalog().set_reads(ckpt::make_error(ckpt::ErrorCode::kCorrupt, "a table is damaged"));
  const size_t batches = world.catalog().batches();
  advance(60s);
  EXPECT_GT(world.catalog().batches(), batches);
  EXPECT_THAT(listed(), ElementsAre(15, 10, 5));
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(listed(), ElementsAre(15, 10, 5));
}

// With an exhausted quota the disk still reports free blocks. Each retry, every 10 s, read the
// journal.
TEST_F(CatalogReturnTest, FailedCatalogReopenBacksOff) {
  world.kill_daemon();
  world.catalog().set_open(kFull);
  ASSERT_TRUE(world.start().ok());
  const size_t opens = world.catalog().opens();
  advance(1000s);
  EXPECT_THAT(world.catalog().opens() - opens, AllOf(::testing::Ge(4u), Le(10u)));
  EXPECT_THAT(listed(), ElementsAre(10, 5));
}

// Regression: commits missing in the catalog of a copy were never replayed, and their segments were
// removed.
TEST_F(CatalogReturnTest, CopiedStoreCatalogWithoutCommitsIsNotUsed) {
  for (const bool removes : {false, true}) {
    SCOPED_TRACE(removes);
    world.stop();
    World copy({.seed = 5});
    copy.set_disk(world.disk().clone(5));
    ASSERT_TRUE(copy.start().ok());
    if (removes) {
      for (int i = 0; i < 40; ++i) copy.tick(1s);
      FakeTrainer root(copy, {.uid = 0, .kind = fb::SessionKind::Control});
      ASSERT_TRUE(root.connect());
      ASSERT_EQ(root.query("rm", R"({"target": "tiny"})").exit_code, 0);
    } else {
      Job copied(copy, 2);
      copied.start(fb::ResumeMode::Latest);
      for (int i = 0; i < 2; ++i) copied.join(fb::ResumeMode::Latest);
    }
    copy.kill_daemon();
    ASSERT_TRUE(world.start().ok());
    job.start(fb::ResumeMode::Latest);
    const ckpt::Step first = job.ranks[0]->epoch().resume_step;
    for (ckpt::Step step = first + 1; step <= first + 7; ++step) job.commit(step);
    const auto before = listed();
    world.kill_daemon();
    world.set_catalog(copy.catalog_image());
    ASSERT_TRUE(world.start().ok());
    EXPECT_EQ(listed(), before);
    job.start(fb::ResumeMode::Latest);
    for (ckpt::Step step = first + 1; step <= first + 7; ++step) {
      job.expect_restores(*job.ranks[0], step);
    }
  }
}

}  // namespace
}  // namespace ckptd::testing
