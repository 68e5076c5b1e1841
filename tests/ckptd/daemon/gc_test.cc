// Reclaiming space through the daemon. Neither a crash nor a restore in flight loses a byte that is
// still needed.
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(PruneTest, PruneReturnsSpaceToDisk) {
  Job job(world, 2);
  job.start();
  for (const ckpt::Step step : {5, 10, 15, 20}) job.commit(step);
  const uint64_t before = used();
  const Json pruned = ask(job, "prune", kLast1);
  world.run();
  const uint64_t bytes = pruned.at("bytes");
  EXPECT_EQ(bytes, 3u * 331'000);
  EXPECT_LE(used() + bytes, before);
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("ckptd_commits_deleted_total 3"));
  restart();
  expect_view(job, 20, {20, 20, 20, 20});
  expect_verified();
  // No space is left to reclaim.
  const Json gc = ask_root("gc", "{}");
  EXPECT_EQ(gc.at("freed_bytes"), 0);
  EXPECT_EQ(gc.at("deletions_waiting"), 0);
}

class SmallSegments : public PruneTest {
 protected:
  // Two commits fill a segment.
  SmallSegments() : PruneTest({.segment_bytes = 768u << 10}) {}
};

TEST_F(SmallSegments, DeadSegmentFilesAreRemoved) {
  Job job(world, 1);
  job.start();
  for (ckpt::Step step = 1; step <= 12; ++step) job.commit(step);
  const size_t before = segment_files();
  ASSERT_GE(before, 6u);
  ask(job, "prune", kLast1);
  world.run();
  EXPECT_LE(segment_files(), 3u);
  expect_view(job, 12, {12, 12, 12, 12});
  restart();
  expect_view(job, 12, {12, 12, 12, 12});
  expect_verified();
}

TEST_F(SmallSegments, PruneAfterEachCommitKeepsFewFiles) {
  Job job(world, 1);
  job.start();
  for (ckpt::Step step = 1; step <= 12; ++step) {
    job.commit(step);
    ask(job, "prune", kLast2);
    EXPECT_LE(segment_files(), 4u) << "step " << step;
  }
  restart();
  expect_view(job, 11, {11, 11, 11, 11});
  expect_view(job, 12, {12, 12, 12, 12});
  expect_verified();
}

TEST_F(PruneTest, LiveUnitDoesNotPinDeadNeighbors) {
  FakeTrainer::Options options;
  options.arena_bytes = 40ull << 20;
  options.slab_bytes = 4ull << 20;
  Job job(world, 1, options);
  job.model.clear();
  for (int i = 0; i < 4; ++i) {
    ckpt::UnitSpec unit;
    unit.name = fmt::format("unit.{}", i);
    unit.bytes = (1u << 20) - 8192;
    job.model.push_back(unit);
  }
  job.start();
  job.commit(5);  // one extent of four units
  commit_units(job, 10, {0, 2, 3});
  const uint64_t before = used();
  ask(job, "prune", kLast1);
  world.run();
  const uint64_t freed = before - used();
  EXPECT_GE(freed, 3 * job.model[0].bytes) << "three of four units are dead";
  EXPECT_LT(freed, 4 * job.model[0].bytes);
  restart();
  FakeTrainer reader(world, options);
  ASSERT_TRUE(reader.connect());
  const auto restored = reader.restore(job.whole(10));
  ASSERT_EQ(restored.error, "");
  EXPECT_THAT(restored.steps, ElementsAre(10, 5, 10, 10));
  for (uint64_t i = 0; i < job.model[1].bytes; ++i) {
    ASSERT_EQ(restored.bytes[1][i], state_byte(1, 5, 0, i));
  }
  expect_verified();
}

TEST_F(PruneTest, ReclaimWaitsForRestoreInFlight) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  job.commit(10);
  restart();
  job.start(fb::ResumeMode::Latest);
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  fb::OpenRestoreT request = job.whole(5);
  reader.send(request);
  const auto opened = reader.take<fb::RestoreOpenedT>();
  ASSERT_TRUE(opened.has_value());
  const uint64_t before = used();
  ask(job, "prune", kLast1);
  const Json gc = ask_root("gc", "{}");
  EXPECT_EQ(gc.at("deletions_waiting"), 1) << gc;
  EXPECT_THAT(gc.at("waiting_for").get<std::string>(), HasSubstr("restores"));
  EXPECT_GE(used() + 100'000, before);
  // The reader gets every byte of the view that it opened.
  uint64_t compared = 0;
  for (bool last = false; !last;) {
    world.run();
    const auto window = reader.take<fb::RestoreWindowT>();
    ASSERT_TRUE(window.has_value()) << reader.error();
    for (const fb::RestoredPiece& piece : window->pieces) {
      const auto bytes = reader.slab(window->slab).subspan(piece.slab_offset(), piece.length());
      for (uint64_t i = 0; i < bytes.size(); ++i) {
        ASSERT_EQ(bytes[i], state_byte(piece.unit(), 5, 0, piece.offset() + i));
      }
      compared += bytes.size();
    }
    EXPECT_THAT(window->notes, IsEmpty());
    last = window->last;
    fb::ReleaseWindowT release;
    release.restore = opened->restore;
    release.slab = window->slab;
    reader.post(std::move(release));
  }
  EXPECT_EQ(compared, 331'000u);
  reader.die();
  world.run();
  EXPECT_LE(used() + 331'000, before) << "and then it goes";
}

TEST_F(PruneTest, NextStartFreesSpaceAfterFailedSync) {
  Job job(world, 1);
  job.start();
  for (const ckpt::Step step : {5, 10, 15}) job.commit(step);
  const uint64_t before = used();
  MemoryFaults faults;
  faults.path_prefix = "segments/";
  faults.fail_nth_sync = 1;
  world.disk().set_faults(faults);
  ask(job, "prune", kLast1);
  world.run();
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("ckptd_space_errors_total 1"));
  world.disk().set_faults({});
  restart();
  EXPECT_LE(used() + 2 * 331'000, before);
  expect_view(job, 15, {15, 15, 15, 15});
  expect_verified();
}

// Extents of an aborted snapshot lie between commits. Their space is reclaimed at once.
TEST_F(PruneTest, AbortedSnapshotFreesItsSpace) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  const uint64_t before = used();
  job.begin(10);
  ASSERT_TRUE(job.ranks[0]->fill(10));
  world.run();
  EXPECT_EQ(used(), before) << "it goes to what was taken ahead";
  job.ranks[1]->die();
  world.run();
  job.listen();
  ASSERT_EQ(job.ranks[0]->snapshot(10).level, fb::SnapshotLevel::Failed);
  EXPECT_LE(used() + 331'000 / 2, before) << "the half that rank 0 had written";
  job.replace(1);
  job.join(fb::ResumeMode::Continue);
  job.commit(10, /*salt=*/3);
  restart();
  expect_view(job, 5, {5, 5, 5, 5});
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  job.expect_restores(reader, 10, /*salt=*/3);
  expect_verified();
}

TEST_F(SmallSegments, SegmentsOfOnlyAbortedSnapshotsAreRemoved) {
  Job job(world, 2);
  job.start();
  job.commit(1);
  for (ckpt::Step step = 2; step <= 9; ++step) {
    job.begin(step);
    ASSERT_TRUE(job.ranks[0]->fill(step));
    world.run();
    job.ranks[1]->die();
    world.run();
    job.replace(1);
    job.join(fb::ResumeMode::Continue);
    EXPECT_LE(segment_files(), 4u) << "step " << step;
  }
  job.commit(10);
  restart();
  expect_view(job, 1, {1, 1, 1, 1});
  expect_view(job, 10, {10, 10, 10, 10});
  expect_verified();
}

// A power loss at any moment of a prune or after it. The tombstones are durable or not; either way
// the commits that are kept are whole.
TEST_F(PruneTest, PruneSurvivesPowerLossAtAnyMoment) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    World fresh({.seed = seed, .segment_bytes = 768u << 10});
    ASSERT_TRUE(fresh.start().ok());
    Job job(fresh, 1);
    job.start();
    for (ckpt::Step step = 1; step <= 6; ++step) job.commit(step);
    fb::QueryT query;
    query.verb = "prune";
    query.args = kLast2;
    job.ranks[0]->send(std::move(query));
    for (uint64_t polls = seed % 12; polls > 0; --polls) fresh.daemon().poll();
    if (seed % 3 == 0) {
      fresh.kill_daemon();
    } else {
      fresh.lose_power();
    }
    if (seed % 5 == 0) fresh.lose_catalog();
    ASSERT_TRUE(fresh.start().ok()) << "seed " << seed;
    fresh.run();
    job.start(fb::ResumeMode::Latest);
    ASSERT_EQ(job.ranks[0]->epoch().resume_step, 6u) << "seed " << seed;
    for (const ckpt::Step step : job.log(*job.ranks[0])) {
      ASSERT_NO_FATAL_FAILURE(job.expect_restores(*job.ranks[0], step)) << "seed " << seed;
    }
    const auto verified = job.ranks[0]->query("verify", R"({"target": "tiny"})");
    EXPECT_EQ(verified.exit_code, 0) << "seed " << seed << ": " << verified.json;
  }
}

// The sync of a commit record fails, yet the next daemon finds the record. Its bytes must be there,
// although no known commit has bytes in that segment.
TEST_F(PruneTest, CommitOfFailedJournalSyncKeepsItsSpace) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  job.begin(10);
  MemoryFaults faults;
  faults.path_prefix = "journal/";
  faults.fail_nth_sync = 1;
  world.disk().set_faults(faults);
  job.fill(5);
  ASSERT_TRUE(job.ranks[0]->fill(10));
  world.run();
  job.listen();
  EXPECT_EQ(job.ranks[0]->snapshot(5).level, fb::SnapshotLevel::Failed);
  job.ranks[1]->die();
  world.run();
  world.disk().set_faults({});
  restart();
  expect_view(job, 5, {5, 5, 5, 5});
  expect_verified();
}

}  // namespace
}  // namespace ckptd::testing
