// From slabs to commits on every engine: acknowledged data can be read back, and altered slabs are
// never acknowledged.
#include <fcntl.h>
#include <gmock/gmock.h>

#include "ckptd/persist/reclaim.h"
#include "ckptd/staging/page_guard.h"
#include "tests/ckptd/persist/small_store.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class PersistTest : public DiskTest {
 protected:
  void SetUp() override {
    DiskTest::SetUp();
    if (disk_ != nullptr) store_ = std::make_unique<SmallStore>(*disk_);
  }
  std::unique_ptr<SmallStore> store_;
};

TEST_P(PersistTest, ACommitIsReadBackByteForByte) {
  for (ckpt::Step step = 1; step <= 5; ++step) EXPECT_TRUE(store_->save(step)) << "step " << step;
  EXPECT_THAT(committed_steps(*disk_), ElementsAre(1, 2, 3, 4, 5));
  const Persist::Stats stats = store_->persist().stats();
  EXPECT_EQ(stats.commits, 5u);
  EXPECT_EQ(stats.extents_written, 10u);
  EXPECT_EQ(stats.bytes_in_flight, 0u);
  EXPECT_EQ(stats.bytes_queued, 0u);
  EXPECT_THAT(disk_->list(kSegmentsDirectory).value(), SizeIs(testing::Ge(2)))
      << "five snapshots do not fit one segment";
  EXPECT_GT(store_->slabs(SlabState::kDurable), 0u) << "they are the memory level now";
}

TEST_P(PersistTest, WrittenSnapshotIsNotCommittedByItself) {
  store_->write(1, 0);
  store_->run_writes(1);
  EXPECT_THAT(store_->snapshots[1].extents, SizeIs(1));
  EXPECT_THAT(committed_steps(*disk_), IsEmpty());
  store_->persist().abandon(SmallStore::key(1));
}

TEST_P(PersistTest, WriteIntoSealedSlabFailsTheSnapshot) {
  StagedSlab slab = store_->stage(1, 0);
  store_->trainer().slab(slab.slab())[50'000] ^= std::byte{1};
  store_->write(1, std::move(slab));
  store_->run_writes(1);
  ASSERT_TRUE(store_->snapshots[1].write_error.has_value());
  EXPECT_EQ(store_->snapshots[1].write_error->code, ErrorCode::kCorrupt);
  EXPECT_THAT(store_->snapshots[1].write_error->message, HasSubstr("unit 0 bytes [0, 100000)"));
  EXPECT_EQ(store_->persist().stats().payload_mismatches, 1u);
  store_->commit(1);
  store_->run();
  ASSERT_TRUE(store_->snapshots[1].committed.has_value());
  EXPECT_FALSE(store_->snapshots[1].committed->ok()) << "even if it is asked for";
  EXPECT_TRUE(store_->save(2)) << "the next one is not affected";
  EXPECT_THAT(committed_steps(*disk_), ElementsAre(2));
}

TEST_P(PersistTest, AHoleInTheArenaFailsTheSnapshot) {
  StagedSlab slab = store_->stage(1, 0);
  const auto at = static_cast<off_t>(slab.slab() * kTestSlabBytes + 8192);
  ASSERT_EQ(fallocate(store_->trainer().fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 4096),
            0);
  store_->write(1, std::move(slab));
  store_->run_writes(1);
  ASSERT_TRUE(store_->snapshots[1].write_error.has_value());
  EXPECT_EQ(store_->snapshots[1].write_error->code, ErrorCode::kCorrupt);
  store_->persist().abandon(SmallStore::key(1));
  EXPECT_TRUE(store_->save(2));
  EXPECT_THAT(committed_steps(*disk_), ElementsAre(2));
}

// Puts the same bytes into other pages. A write from pinned pages would not store these pages.
void exchange_pages(SmallStore& store, const StagedSlab& slab) {
  const MutableByteView bytes = store.trainer().slab(slab.slab());
  const std::vector<std::byte> before(bytes.begin(), bytes.end());
  const auto at = static_cast<off_t>(slab.slab() * kTestSlabBytes + 8192);
  ASSERT_EQ(fallocate(store.trainer().fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 4096), 0);
  std::copy(before.begin(), before.end(), bytes.begin());
}

TEST_P(PersistTest, RefilledHoleFailsIncompressibleSnapshot) {
  if (!page_guard_available()) GTEST_SKIP() << "no page tables to look at here";
  if (GetParam() == "memory") GTEST_SKIP() << "the memory disk copies what is there: no pinning";
  StagedSlab slab = store_->stage(1, 0);
  exchange_pages(*store_, slab);
  const auto units = std::make_shared<const std::vector<ckpt::UnitSpec>>(64);
  store_->write(1, std::move(slab),
                units);  // random bytes do not get smaller, so they are written raw
  store_->run_writes(1);
  ASSERT_TRUE(store_->snapshots[1].write_error.has_value());
  EXPECT_THAT(store_->snapshots[1].write_error->message, HasSubstr("pages were exchanged"));
  store_->persist().abandon(SmallStore::key(1));
}

TEST_P(PersistTest, ARefilledHoleFailsTheSnapshot) {
  if (!page_guard_available()) GTEST_SKIP() << "no page tables to look at here";
  if (GetParam() == "memory") GTEST_SKIP() << "the memory disk copies what is there: no pinning";
  StagedSlab slab = store_->stage(1, 0);
  exchange_pages(*store_, slab);
  store_->write(1, std::move(slab));
  store_->run_writes(1);
  ASSERT_TRUE(store_->snapshots[1].write_error.has_value());
  EXPECT_THAT(store_->snapshots[1].write_error->message, HasSubstr("pages were exchanged"));
  store_->persist().abandon(SmallStore::key(1));
  // The arena is no longer written from pinned pages, but its bytes can still be saved.
  EXPECT_TRUE(store_->save(2));
  EXPECT_TRUE(store_->save(3));
  EXPECT_THAT(committed_steps(*disk_), ElementsAre(2, 3));
}

TEST_P(PersistTest, CommitsThatAreReadyTogetherShareSyncs) {
  for (ckpt::Step step = 1; step <= 6; ++step) store_->write(step, 0);
  store_->run();
  const uint64_t before = store_->persist().stats().syncs;
  for (ckpt::Step step = 1; step <= 6; ++step) store_->commit(step);
  store_->run();
  EXPECT_EQ(committed_steps(*disk_).size(), 6u);
  // The first commit starts a sync round alone, the other five share one: at most two files each.
  EXPECT_LE(store_->persist().stats().syncs - before, 4u);
}

TEST_P(PersistTest, AnAbandonedSnapshotLeavesNothingVisible) {
  store_->write(1, 0);
  store_->write(1, 10);
  store_->write(2, 0);
  store_->persist().abandon(SmallStore::key(1));
  store_->run();
  EXPECT_THAT(store_->snapshots[1].extents, IsEmpty()) << "no callback of it runs";
  EXPECT_THAT(store_->snapshots[2].extents, SizeIs(1));
  EXPECT_EQ(store_->slabs(SlabState::kFree), 7u);
  EXPECT_EQ(store_->persist().stats().bytes_queued, 0u);
  store_->commit(2);
  store_->run();
  EXPECT_THAT(committed_steps(*disk_), ElementsAre(2));
}

TEST_P(PersistTest, AbandonDuringCommitHasNoEffect) {
  store_->write(1, 0);
  store_->run_writes(1);
  store_->commit(1);
  store_->persist().abandon(SmallStore::key(1));
  store_->run();
  ASSERT_TRUE(store_->snapshots[1].committed.has_value());
  EXPECT_TRUE(store_->snapshots[1].committed->ok());
}

TEST_P(PersistTest, CloseFreesPreallocatedSpace) {
  EXPECT_TRUE(store_->save(1, 1));
  store_.reset();
  uint64_t bytes = 0;
  const auto names = disk_->list(kSegmentsDirectory).value();
  for (const std::string& name : names) {
    const FileId file = disk_->open(fmt::format("{}/{}", kSegmentsDirectory, name), {}).value();
    bytes += disk_->size(file).value();
    disk_->close(file);
  }
  EXPECT_LT(bytes, kTestSlabBytes);
  EXPECT_THAT(committed_steps(*disk_), ElementsAre(1));
}

TEST_P(PersistTest, StartReclaimsSegmentsLeftByCrash) {
  // State after a killed daemon: a segment with a commit, one without commits, and a foreign file.
  EXPECT_TRUE(store_->save(1, 1));
  const WrittenExtent extent = store_->snapshots[1].extents.at(0);
  const ExtentPlace place = place_of(extent);
  const uint64_t end = place.offset + place.bytes;
  store_.reset();
  const FileId listed = disk_->open(segment_path(extent.segment), {}).value();
  ASSERT_TRUE(disk_->truncate(listed, kTestSegmentBytes).ok());
  disk_->close(listed);
  disk_->close(create(segment_path(77), kTestSegmentBytes));
  disk_->close(create("segments/notes.txt"));

  ASSERT_TRUE(reclaim_unlisted(*disk_, kTestStore, {{extent.segment, {place}}}).ok());
  EXPECT_THAT(disk_->list(kSegmentsDirectory).value(), ElementsAre("000001.seg", "notes.txt"));
  const FileId cut = disk_->open(segment_path(extent.segment), {}).value();
  EXPECT_EQ(disk_->size(cut).value(), end);
  disk_->close(cut);
  EXPECT_THAT(committed_steps(*disk_), ElementsAre(1));
}

TEST_P(PersistTest, StartFindsUnlistedSpaceBetweenCommits) {
  std::vector<ExtentPlace> places;
  for (ckpt::Step step = 1; step <= 3; ++step) {
    EXPECT_TRUE(store_->save(step, 1));
    places.push_back(place_of(store_->snapshots[step].extents.at(0)));
    ASSERT_EQ(places.back().segment, places.front().segment);
  }
  store_.reset();
  const ListedExtents listed = {{places[0].segment, {places[2], places[0]}}};
  const auto left = reclaim_unlisted(*disk_, kTestStore, listed);
  ASSERT_TRUE(left.ok()) << left.error().message;
  EXPECT_TRUE(left->complete);
  ASSERT_THAT(left->left, SizeIs(1));
  EXPECT_EQ(left->left.front().segment, places[1].segment);
  EXPECT_EQ(left->left.front().offset, places[1].offset);
  EXPECT_EQ(left->left.front().bytes, places[1].bytes);
  // After the reclaim nothing is left to do.
  const FileId file = disk_->open(segment_path(places[1].segment), {}).value();
  disk_->submit({.op = IoOp::kPunch,
                 .file = file,
                 .offset = places[1].offset,
                 .bytes = places[1].bytes,
                 .on_done = [](const Result<uint64_t>& punched) { EXPECT_TRUE(punched.ok()); }});
  while (disk_->in_flight() > 0) {
    disk_->wait();
    disk_->reap();
  }
  disk_->close(file);
  const auto again = reclaim_unlisted(*disk_, kTestStore, listed);
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(again->left, IsEmpty());
}

// Extents of an aborted snapshot are reported dead, and are not written afterwards.
TEST_P(PersistTest, ExtentsOfAbortedSnapshotAreReportedDead) {
  EXPECT_TRUE(store_->save(1, 1));
  EXPECT_THAT(store_->dead, IsEmpty());
  store_->write(2, 1);
  run_all(*disk_, store_->executor());
  const ExtentPlace place = place_of(store_->snapshots[2].extents.at(0));
  store_->persist().abandon(SmallStore::key(2));
  ASSERT_THAT(store_->dead, SizeIs(1));
  EXPECT_EQ(store_->dead[0].offset, place.offset);
  EXPECT_EQ(store_->dead[0].bytes, place.bytes);
  // An extent whose write is in flight is reported once the write has ended.
  store_->write(3, 1);
  store_->persist().abandon(SmallStore::key(3));
  run_all(*disk_, store_->executor());
  EXPECT_THAT(store_->dead, SizeIs(2));
  EXPECT_TRUE(store_->save(4, 1));
  EXPECT_THAT(store_->dead, SizeIs(2));
}

INSTANTIATE_TEST_SUITE_P(Engines, PersistTest, testing::Values("uring", "pwritev", "memory"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace ckptd
