// Files of another store, or of another history of this store, in the directory of a store: the
// start checks them before it writes.
#include "ckptd/recovery/identity.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>

#include "tests/ckptd/daemon/job.h"
#include "tests/ckptd/daemon/store_files.h"
#include "tests/ckptd/io/passing_disk.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSalvaged[] = "journal/salvaged.log";

class IdentityTest : public ::testing::Test {
 protected:
  IdentityTest() : world({}), job(world, 2), other({.seed = 77}), other_job(other, 2) {
    EXPECT_TRUE(world.start().ok());
    EXPECT_TRUE(other.start().ok());
    job.start();
    other_job.start();
    for (const ckpt::Step step : {5, 10}) job.commit(step);
    for (const ckpt::Step step : {7, 14, 21}) other_job.commit(step);
  }
  std::vector<ckpt::Step> log_of(World& of) {
    FakeTrainer root(of, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(root.connect());
    return job.log(root);
  }
  // The start fails with this error and leaves every file as it was.
  void expect_refused_untouched(const std::vector<std::string>& says,
                                ckpt::ErrorCode code = ckpt::ErrorCode::kFailedPrecondition,
                                const MemoryFaults& faults = {}) {
    const auto files = all_files(world.disk());
    world.disk().set_faults(faults);
    const Status started = world.start();
    world.disk().set_faults({});
    ASSERT_FALSE(started.ok());
    EXPECT_EQ(started.error().code, code) << started.error().message;
    for (const std::string& part : says) EXPECT_THAT(started.error().message, HasSubstr(part));
    EXPECT_TRUE(all_files(world.disk()) == files) << "a file was changed, made or removed";
  }
  // Puts back the journal from before a start that committed step 15, and loses the catalog.
  // Returns the newest journal.
  std::vector<std::byte> restore_older_journal() {
    world.stop();
    const auto older = file_bytes(world.disk(), kJournalPath);
    EXPECT_TRUE(world.start().ok());
    job.start(fb::ResumeMode::Latest);
    job.commit(15);
    world.kill_daemon();
    const auto newest = file_bytes(world.disk(), kJournalPath);
    put_file(world.disk(), kJournalPath, older);
    world.lose_catalog();
    return newest;
  }
  // Stops the daemon and copies its disk. The copy prunes step 5 and does nothing else.
  void copy_and_prune(World& copy) {
    world.tick(std::chrono::seconds(7));  // no two starts have the same time
    world.stop();
    copy.set_disk(world.disk().clone(5));
    ASSERT_TRUE(copy.start().ok());
    FakeTrainer root(copy, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    ASSERT_TRUE(root.connect());
    const auto pruned = root.query("prune", R"({"target": "tiny", "rules": {"last": 1}})");
    EXPECT_EQ(pruned.exit_code, 0) << pruned.json;
    copy.run();
    copy.kill_daemon();
  }
  std::vector<std::string> journal_files() { return world.disk().list(kJournalDirectory).value(); }
  World world;
  Job job;
  World other;
  Job other_job;
};

// Regression: the daemon served and resumed from the commits of the other store.
TEST_F(IdentityTest, ForeignCatalogIsRebuilt) {
  world.kill_daemon();
  other.kill_daemon();
  world.set_catalog(other.catalog_image());
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(log_of(world), ElementsAre(10, 5));
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 10u);
  job.expect_restores(*job.ranks[0], 10);
}

TEST_F(IdentityTest, CatalogOfOtherHistoryIsRebuilt) {
  world.stop();
  World copy({.seed = 5});
  copy.set_disk(world.disk().clone(5));
  ASSERT_TRUE(copy.start().ok());
  Job copied(copy, 2);
  copied.start(fb::ResumeMode::Latest);
  copied.commit(33);
  copy.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Latest);
  job.commit(15);
  job.commit(20);
  world.kill_daemon();
  world.set_catalog(copy.catalog_image());
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(log_of(world), ElementsAre(20, 15, 10, 5));
}

// Regression: equal newest commits passed the check, so the copy's deletions removed commits here.
TEST_F(IdentityTest, CatalogOfPrunedCopyIsNotUsed) {
  World copy({.seed = 5});
  copy_and_prune(copy);
  ASSERT_TRUE(world.start().ok());
  for (int i = 0; i < 3; ++i) {  // as many records as the copy has
    FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    ASSERT_TRUE(root.connect());
    EXPECT_EQ(root.query("tag", R"({"target": "tiny@5", "tag": "best"})").exit_code, 0);
  }
  world.kill_daemon();
  world.set_catalog(copy.catalog_image());
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(log_of(world), ElementsAre(10, 5));
  job.start(fb::ResumeMode::Latest);
  job.expect_restores(*job.ranks[0], 5);
}

// Regression: the space of this store's later snapshots was reclaimed.
TEST_F(IdentityTest, JournalOfPrunedCopyIsRefused) {
  World copy({.seed = 5});
  copy_and_prune(copy);
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Latest);
  job.commit(15);
  world.kill_daemon();
  const auto own = file_bytes(world.disk(), kJournalPath);
  put_file(world.disk(), kJournalPath, file_bytes(copy.disk(), kJournalPath));
  world.lose_catalog();
  expect_refused_untouched({"of another copy of the store", "an epoch that it has no record of"});
  put_file(world.disk(), kJournalPath, own);
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(log_of(world), ElementsAre(15, 10, 5));
}

// Regression: the store's own catalog was moved aside or emptied before the journal was refused.
TEST_F(IdentityTest, RefusedJournalLeavesCatalogUnchanged) {
  World copy({.seed = 5});
  copy_and_prune(copy);
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Latest);
  job.commit(15);
  world.kill_daemon();
  const auto own = file_bytes(world.disk(), kJournalPath);
  put_file(world.disk(), kJournalPath, file_bytes(copy.disk(), kJournalPath));
  const size_t batches = world.catalog().batches();
  expect_refused_untouched({"of another copy of the store", "an epoch that it has no record of"});
  EXPECT_EQ(world.catalog().batches(), batches) << "moved aside";
  world.catalog().set_reads(ckpt::make_error(ckpt::ErrorCode::kCorrupt, "a block is damaged"));
  expect_refused_untouched({"of another copy of the store"});
  EXPECT_EQ(world.catalog().batches(), batches) << "emptied";
  world.catalog().set_reads({});
  put_file(world.disk(), kJournalPath, own);
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(log_of(world), ElementsAre(15, 10, 5));
}

// Regression: the daemon served, marked commits damaged and truncated segments.
TEST_F(IdentityTest, ForeignJournalIsRefused) {
  world.kill_daemon();
  const auto own = file_bytes(world.disk(), kJournalPath);
  put_file(world.disk(), kJournalPath, file_bytes(other.disk(), kJournalPath));
  expect_refused_untouched({"journal/journal.log", "segments/000001.seg", "back"});
  world.lose_catalog();
  expect_refused_untouched({"belongs to store"});
  put_file(world.disk(), kJournalPath, own);
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(log_of(world), ElementsAre(10, 5));
}

// Regression: the checks skipped unreadable files, and files without a listed extent were removed.
TEST_F(IdentityTest, UnreadableSegmentsRefuseTheStart) {
  world.kill_daemon();
  put_file(world.disk(), segment_path(9), file_bytes(other.disk(), segment_path(1)));
  for (const bool open : {true, false}) {
    const double refused = 1;
    for (const int error : {EMFILE, EACCES}) {
      expect_refused_untouched(
          {segment_path(1), "nothing was changed"},
          error == EACCES ? ckpt::ErrorCode::kPermissionDenied : ckpt::ErrorCode::kUnavailable,
          {.path_prefix = "segments/",
           .refused_open = open ? refused : 0,
           .refused_read = open ? 0 : refused,
           .refusal = error});
    }
  }
}

TEST_F(IdentityTest, AForeignSegmentIsRefused) {
  world.kill_daemon();
  put_file(world.disk(), segment_path(9), file_bytes(other.disk(), segment_path(1)));
  expect_refused_untouched({"segments/000009.seg"});
  ASSERT_TRUE(world.disk().remove(segment_path(9)).ok());
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(log_of(world), ElementsAre(10, 5));
}

// Regression: the space of commits that the older journal does not list was reclaimed.
TEST_F(IdentityTest, OlderJournalIsRefusedWithoutCatalog) {
  const auto image = world.catalog_image();
  restore_older_journal();
  expect_refused_untouched({"is older than the segments", "segments/"});
  // The catalog has the records that the journal lacks.
  world.set_catalog(image);
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(log_of(world), ElementsAre(15, 10, 5));
  EXPECT_THAT(journal_files(), Contains("damaged-1.log"));
}

// Regression: any damaged journal that was kept disabled the check for good.
TEST_F(IdentityTest, OlderJournalIsRefusedAfterSalvage) {
  world.kill_daemon();
  world.disk().flip(kJournalPath, 200);
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(journal_files(), Contains("damaged-1.log"));
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok()) << "the new journal counts fewer starts";
  EXPECT_THAT(journal_files(), Not(Contains(kOlderJournalMarker)));
  restore_older_journal();
  expect_refused_untouched({"is older than the segments"});
}

// A salvaged journal lacks the records of starts whose snapshots did not finish.
TEST_F(IdentityTest, SalvagedJournalIsAcceptedUntilReclaim) {
  for (int i = 0; i < 3; ++i) {
    world.kill_daemon();
    ASSERT_TRUE(world.start().ok());
  }
  job.start(fb::ResumeMode::Latest);
  job.begin(15);
  ASSERT_TRUE(job.ranks[0]->fill(15));  // its extents are written, but it is not committed
  world.run();
  world.kill_daemon();
  world.disk().flip(kJournalPath, 200);
  for (int i = 0; i < 3; ++i) {
    const Status started = world.start();
    ASSERT_TRUE(started.ok()) << started.error().message;
    world.kill_daemon();
  }
  EXPECT_THAT(journal_files(), Not(Contains(kOlderJournalMarker)));
}

// Regression: a start wrote its own record, and the next start took that for the missing record.
TEST_F(IdentityTest, OlderJournalWithTornTailIsRefused) {
  restore_older_journal();
  auto torn = file_bytes(world.disk(), kJournalPath);
  const uint64_t end = journal_end(world.disk());
  torn.resize(end + ckpt::kBlockBytes);
  std::fill(torn.begin() + static_cast<ptrdiff_t>(end), torn.end(), std::byte{7});
  put_file(world.disk(), kJournalPath, torn);
  expect_refused_untouched({"is older than the segments"});
}

TEST_F(IdentityTest, MarkerAcceptsOlderJournalForOneStart) {
  restore_older_journal();
  put_file(world.disk(), "journal/older-journal-is-meant", {});
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(log_of(world), ElementsAre(10, 5));
  EXPECT_THAT(journal_files(), Not(Contains(kOlderJournalMarker))) << "for one start";
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Latest);
  job.expect_restores(*job.ranks[0], 10);
}

// A store restored from a backup that skips empty directories: segments/ is missing.
class WithoutSegments final : public PassingDisk {
 public:
  using PassingDisk::PassingDisk;
  Result<std::vector<std::string>> list(std::string_view directory) override {
    if (directory == kSegmentsDirectory && !made_) {
      return ckpt::make_error(ckpt::ErrorCode::kNotFound, "segments: No such file or directory");
    }
    return disk_.list(directory);
  }
  Status make_directory(std::string_view path) override {
    made_ = made_ || path == kSegmentsDirectory;
    return disk_.make_directory(path);
  }
  bool made() const { return made_; }

 private:
  bool made_ = false;
};

TEST_F(IdentityTest, MissingSegmentsDirectoryIsCreatedForEmptyStore) {
  world.stop();
  {
    WithoutSegments missing(world.disk());
    world.set_door(&missing);
    expect_refused_untouched({"segments is missing", "Put it back", "make an empty directory"});
    EXPECT_FALSE(missing.made());
    world.set_door(nullptr);
  }
  World empty({.seed = 9});
  ASSERT_TRUE(empty.start().ok());
  empty.stop();
  WithoutSegments missing(empty.disk());
  empty.set_door(&missing);
  const Status started = empty.start();
  EXPECT_TRUE(started.ok()) << started.error().message;
  EXPECT_TRUE(missing.made());
  empty.stop();
  empty.set_door(nullptr);
}

// Regression: any salvaged journal replaced the journal.
TEST_F(IdentityTest, TruncatedSalvagedJournalIsRefused) {
  world.kill_daemon();
  auto part = file_bytes(world.disk(), kJournalPath);
  part.resize(8192);
  put_file(world.disk(), kSalvaged, part);
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(log_of(world), ElementsAre(10, 5));
  EXPECT_THAT(journal_files(), AllOf(Contains("refused-1.log"), Not(Contains("salvaged.log"))));
}

TEST_F(IdentityTest, SalvagedJournalOfOtherStoreIsRefused) {
  world.kill_daemon();
  other.stop();
  put_file(world.disk(), kSalvaged, file_bytes(other.disk(), kJournalPath));
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(log_of(world), ElementsAre(10, 5));
  EXPECT_THAT(journal_files(), Contains("refused-1.log"));
}

// Regression: a journal that could not be opened was taken for one that names no store.
TEST_F(IdentityTest, UnreadableJournalKeepsSalvagedJournal) {
  world.kill_daemon();
  other.stop();
  put_file(world.disk(), kSalvaged, file_bytes(other.disk(), kJournalPath));
  world.disk().set_faults({.path_prefix = kJournalPath, .refused_open = 1});
  const Status started = world.start();
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().message, HasSubstr(kJournalPath));
  EXPECT_THAT(journal_files(), Contains("salvaged.log")) << "nothing was changed";
  world.disk().set_faults({});
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(log_of(world), ElementsAre(10, 5));
  EXPECT_THAT(journal_files(), Contains("refused-1.log"));
}

TEST_F(IdentityTest, RefusedSalvageWithoutJournalFailsStart) {
  world.kill_daemon();
  auto part = file_bytes(world.disk(), kJournalPath);
  part.resize(8192);
  put_file(world.disk(), kSalvaged, part);
  ASSERT_TRUE(world.disk().remove(kJournalPath).ok());
  const Status started = world.start();
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().message, AllOf(HasSubstr("salvaged.log"), HasSubstr("from a copy")));
  EXPECT_THAT(journal_files(), Contains("salvaged.log"));
}

// Regression: an error of list() was taken for an empty directory.
TEST_F(IdentityTest, DamagedJournalAloneIsNotNewStore) {
  World empty({.seed = 9});
  ASSERT_TRUE(empty.start().ok());
  empty.stop();
  ASSERT_TRUE(empty.disk().rename(kJournalPath, "journal/damaged-1.log").ok());
  const Status started = empty.start();
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().message, HasSubstr("damaged-1.log"));
}

}  // namespace
}  // namespace ckptd::testing
