// Recovery of a store after a stop, a killed daemon or a power loss.
#include <gmock/gmock.h>

#include "ckptd/history/recovered_store.h"
#include "ckptd/io/store_paths.h"
#include "tests/ckptd/daemon/job.h"
#include "tests/ckptd/daemon/store_files.h"
#include "tests/ckptd/io/paced_disk.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecoveryTest : public ::testing::Test {
 protected:
  RecoveryTest() : world({}) { EXPECT_TRUE(world.start().ok()); }
  // The journal's records, as they are on disk.
  std::vector<ckpt::fb::RecordT> records() {
    std::vector<ckpt::fb::RecordT> all;
    const FileId file = world.disk().open(kJournalPath, {}).value();
    const auto scan = scan_journal_file(world.disk(), file, [&](uint64_t, const auto& record) {
      all.push_back(record);
      return Status();
    });
    EXPECT_TRUE(scan.ok());
    world.disk().close(file);
    return all;
  }
  // The levels of the run's commits after a start, which is then killed.
  std::vector<std::string> levels_after_start() {
    EXPECT_TRUE(world.start().ok());
    FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(root.connect());
    std::vector<std::string> levels;
    const auto log = nlohmann::json::parse(root.query("log", R"({"target": "tiny"})").json);
    for (const auto& commit : log) levels.push_back(commit.at("level").get<std::string>());
    world.kill_daemon();
    return levels;
  }
  World world;
};

TEST_F(RecoveryTest, CommitsTagsAndEpochsSurviveAnyStop) {
  for (const int way : {0, 1, 2}) {
    World fresh({.seed = 10u + static_cast<uint64_t>(way)});
    ASSERT_TRUE(fresh.start().ok());
    Job job(fresh, 2);
    job.start();
    for (const ckpt::Step step : {5, 10, 15}) job.commit(step);
    EXPECT_EQ(job.ranks[0]->query("tag", R"({"target": "tiny@10", "tag": "good"})").exit_code, 0);
    if (way == 0) fresh.stop();
    if (way == 1) fresh.kill_daemon();
    if (way == 2) fresh.lose_power();
    ASSERT_TRUE(fresh.start().ok());
    job.start(fb::ResumeMode::Latest);
    EXPECT_EQ(job.ranks[0]->epoch().epoch, 2u);
    EXPECT_EQ(job.ranks[0]->epoch().resume_step, 15u);
    EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(15, 10, 5));
    auto tagged = job.whole(0);
    tagged.tag = "good";
    job.expect_bytes(job.ranks[1]->restore(tagged), 10, 0);
  }
}

TEST_F(RecoveryTest, JournalIsReadOnceWithCompleteCatalog) {
  Job job(world, 1);
  job.start();
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  const auto reads_of_a_start = [&](bool with_catalog) {
    world.kill_daemon();
    if (!with_catalog) world.lose_catalog();
    PacedDisk door(world.disk(), 1e9);
    const FileId file = door.open(kJournalPath, {}).value();
    EXPECT_TRUE(scan_journal_file(door, file, [](uint64_t, const auto&) { return Status(); }).ok());
    door.close(file);
    const size_t once = door.reads_of(kJournalPath);
    EXPECT_GT(once, 0u);
    world.set_door(&door);
    EXPECT_TRUE(world.start().ok());
    const size_t reads = door.reads_of(kJournalPath) - once;
    world.kill_daemon();
    world.set_door(nullptr);
    EXPECT_TRUE(world.start().ok());
    return std::pair(reads, once);
  };
  const auto [reads, once] = reads_of_a_start(true);
  EXPECT_EQ(reads, once);
  const auto [reads_without, once_without] = reads_of_a_start(false);
  EXPECT_GE(reads_without, 2 * once_without);
}

TEST_F(RecoveryTest, CatalogIsRebuiltFromJournal) {
  Job job(world, 2);
  job.start();
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  job.ranks[0]->query("tag", R"({"target": "tiny@5", "tag": "first"})");
  const auto log = job.ranks[0]->query("log", R"({"target": "tiny"})").json;
  const auto show = job.ranks[0]->query("show", R"({"target": "tiny@10"})").json;
  const auto rebuilt = job.ranks[0]->query("rebuild", "");
  EXPECT_EQ(rebuilt.exit_code, 1) << "user 54321 is not the daemon's";
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  FakeTrainer asker(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(asker.connect());
  EXPECT_EQ(asker.query("log", R"({"target": "tiny"})").json, log);
  const auto again = asker.query("rebuild", "");
  EXPECT_EQ(again.exit_code, 0) << again.json;
  EXPECT_EQ(nlohmann::json::parse(again.json).at("commits"), 2);
  EXPECT_EQ(asker.query("log", R"({"target": "tiny"})").json, log);
  EXPECT_EQ(asker.query("show", R"({"target": "tiny@10"})").json, show);
}

TEST_F(RecoveryTest, CommitWithDamagedHeaderIsListedDamaged) {
  Job job(world, 2);
  job.start();
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  uint64_t offset = 0;
  ckpt::SegmentId segment = 0;
  for (const auto& record : records()) {
    if (const auto* commit = record.body.AsCommitted(); commit != nullptr && commit->step == 10) {
      segment = commit->extents[0]->segment;
      offset = commit->extents[0]->offset;
    }
  }
  ASSERT_GT(segment, 0u);
  world.kill_daemon();
  world.disk().flip(segment_path(segment), offset + 40);
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 5u);
  const auto log =
      nlohmann::json::parse(job.ranks[0]->query("log", R"({"target": "tiny~1"})").json);
  EXPECT_EQ(log.at(0).at("step"), 10);
  EXPECT_EQ(log.at(0).at("level"), "damaged");
  job.expect_restores(*job.ranks[0], 5);
  EXPECT_THAT(job.ranks[0]->restore(job.whole(10)).error, HasSubstr("step 10"));
}

// A start marks all commits damaged while their segment file is missing.
TEST_F(RecoveryTest, CommitsAreDurableAgainOnceSegmentReturns) {
  Job job(world, 1);
  job.start();
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  world.kill_daemon();
  const std::string path = segment_path(1);
  const std::vector<std::byte> bytes = file_bytes(world.disk(), path);
  ASSERT_TRUE(world.disk().remove(path).ok());
  world.lose_catalog();
  EXPECT_THAT(levels_after_start(), ElementsAre("damaged", "damaged"));
  EXPECT_THAT(levels_after_start(), ElementsAre("damaged", "damaged")) << "it is still missing";
  put_file(world.disk(), path, bytes);
  EXPECT_THAT(levels_after_start(), ElementsAre("durable", "durable"));
  world.lose_catalog();
  EXPECT_THAT(levels_after_start(), ElementsAre("durable", "durable"))
      << "the journal says so, too";
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 10u);
  job.expect_restores(*job.ranks[0], 10);
  EXPECT_EQ(job.ranks[0]->query("verify", R"({"target": "tiny"})").exit_code, 0);
}

// The catalog is whole and knows all commits: no record is replayed.
TEST_F(RecoveryTest, LostSegmentIsNoticedBesideAWholeCatalog) {
  Job job(world, 1);
  job.start();
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  world.kill_daemon();
  EXPECT_THAT(levels_after_start(), ElementsAre("durable", "durable"));
  const std::string path = segment_path(1);
  const std::vector<std::byte> bytes = file_bytes(world.disk(), path);
  ASSERT_TRUE(world.disk().remove(path).ok());
  EXPECT_THAT(levels_after_start(), ElementsAre("damaged", "damaged"));
  put_file(world.disk(), path, bytes);
  EXPECT_THAT(levels_after_start(), ElementsAre("durable", "durable"));
  truncate_file(world.disk(), path, 4096);
  EXPECT_THAT(levels_after_start(), ElementsAre("damaged", "damaged"));
}

TEST_F(RecoveryTest, ADamagedSegmentHeaderCostsNoCommit) {
  Job job(world, 2);
  job.start();
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  world.kill_daemon();
  world.disk().flip(segment_path(1), 2000);  // padding
  world.disk().flip(segment_path(1), 9);     // and the version
  world.lose_catalog();                      // the start checks every commit
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 10u);
  job.expect_restores(*job.ranks[0], 10);
  const auto verified = job.ranks[0]->query("verify", R"({"target": "tiny"})");
  EXPECT_EQ(verified.exit_code, 4);
  const auto errors = nlohmann::json::parse(verified.json).at("errors");
  ASSERT_EQ(errors.size(), 2u) << verified.json;
  EXPECT_EQ(errors.at(0).at("step"), 5);
  EXPECT_EQ(errors.at(1).at("step"), 10);
  EXPECT_THAT(errors.at(0).at("reason").get<std::string>(), HasSubstr("segment 1: the header"));
}

TEST_F(RecoveryTest, TornTailIsTruncated) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  const size_t before = records().size();
  world.kill_daemon();
  const FileId file = world.disk().open(kJournalPath, {}).value();
  const uint64_t size = world.disk().size(file).value();
  AlignedBuffer junk(4096);
  std::fill(junk.bytes().begin(), junk.bytes().end(), std::byte{0x5a});
  ASSERT_TRUE(write_blocking(world.disk(), file, size, junk.bytes()).ok());
  world.disk().close(file);
  ASSERT_TRUE(world.start().ok());
  EXPECT_EQ(records().size(), before + 1) << "and StoreOpened";
  job.start(fb::ResumeMode::Latest);
  job.expect_restores(*job.ranks[0], 5);
}

TEST_F(RecoveryTest, NewerFormatIsRefusedUnchanged) {
  world.stop();
  const FileId file = world.disk().open(kJournalPath, {}).value();
  const auto scan =
      scan_journal_file(world.disk(), file, [](uint64_t, const auto&) { return Status(); });
  ckpt::JournalEncoder encoder(scan->end);
  ckpt::fb::StoreOpenedT newer;
  newer.format_version = ckpt::kStoreFormatVersion + 1;
  const auto batch = encoder.encode({make_record(std::move(newer))});
  AlignedBuffer bytes(batch.bytes.size());
  std::copy(batch.bytes.begin(), batch.bytes.end(), bytes.bytes().begin());
  ASSERT_TRUE(write_blocking(world.disk(), file, batch.offset, bytes.bytes()).ok());
  const uint64_t size = world.disk().size(file).value();
  const Status started = world.start();
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ckpt::ErrorCode::kVersionMismatch);
  EXPECT_THAT(started.error().message,
              AllOf(HasSubstr(fmt::format("format version {}", ckpt::kStoreFormatVersion + 1)),
                    HasSubstr("newer")));
  EXPECT_EQ(world.disk().size(file).value(), size);
}

TEST_F(RecoveryTest, SegmentsWithoutTheirJournalAreRefused) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  world.kill_daemon();
  ASSERT_TRUE(world.disk().remove(kJournalPath).ok());
  const Status started = world.start();
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().message, HasSubstr("no journal"));
}

TEST_F(RecoveryTest, StoreCreationSurvivesPowerLoss) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    World fresh({.seed = seed});
    ASSERT_TRUE(fresh.start().ok());
    fresh.lose_power();
    ASSERT_TRUE(fresh.start().ok()) << "seed " << seed;
  }
}

TEST_F(RecoveryTest, StartRecordsWhetherLastStopWasClean) {
  world.stop();
  ASSERT_TRUE(world.start().ok());
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  std::vector<bool> clean;
  for (const auto& record : records()) {
    if (const auto* opened = record.body.AsStoreOpened()) clean.push_back(opened->clean);
  }
  EXPECT_THAT(clean, ElementsAre(true, true, false));
}

}  // namespace
}  // namespace ckptd::testing
