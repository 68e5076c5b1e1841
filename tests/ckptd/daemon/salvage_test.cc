// A journal that lost durable records: the catalog proves the loss, and the records are put back.
#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <functional>
#include <sstream>

#include "ckptd/history/recovered_store.h"
#include "ckptd/io/store_paths.h"
#include "tests/ckptd/daemon/saved_run_fixture.h"
#include "tests/ckptd/daemon/store_files.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class SalvageTest : public SavedRunTest {
 protected:
  uint64_t journal_bytes() {
    const FileId file = world.disk().open(kJournalPath, {}).value();
    const uint64_t bytes = world.disk().size(file).value();
    world.disk().close(file);
    return bytes;
  }
  // Kills the daemon with -9, flips one bit of the journal at this offset, and starts it.
  void restart_with_flip(uint64_t offset) {
    world.kill_daemon();
    world.disk().flip(kJournalPath, offset);
    ASSERT_TRUE(world.start().ok());
  }
  // Kills the daemon, truncates the journal at `end`, and starts it.
  void restart_without_tail(uint64_t end) {
    world.kill_daemon();
    truncate_file(world.disk(), kJournalPath, end);
    ASSERT_TRUE(world.start().ok());
  }
  std::vector<std::string> journal_files() { return world.disk().list(kJournalDirectory).value(); }
  // The log lines of `act`.
  static std::string log_of(const std::function<void()>& act) {
    std::ostringstream log;
    const auto before = spdlog::default_logger();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "kept", std::make_shared<spdlog::sinks::ostream_sink_st>(log)));
    act();
    spdlog::set_default_logger(before);
    return log.str();
  }
};

TEST_F(SalvageTest, CommitInDamagedLastBatchIsRestored) {
  const uint64_t last = journal_bytes();
  job.commit(15);
  const auto log = root().query("log", R"({"target": "tiny"})").json;
  const auto show = root().query("show", R"({"target": "tiny@15"})").json;
  restart_with_flip(last + 200);
  EXPECT_EQ(root().query("log", R"({"target": "tiny"})").json, log);
  EXPECT_EQ(root().query("show", R"({"target": "tiny@15"})").json, show);
  EXPECT_EQ(root().query("verify", "").exit_code, 0);
  EXPECT_THAT(journal_files(), Contains("damaged-1.log")) << "and the bytes are kept";
  // The journal alone gives the same answers afterwards.
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  EXPECT_EQ(root().query("log", R"({"target": "tiny"})").json, log);
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 15u);
  job.expect_restores(*job.ranks[0], 15);
  job.commit(20);
}

TEST_F(SalvageTest, RemovedRunStaysRemoved) {
  for (auto& rank : job.ranks) rank->send(fb::LeaveGroupT());
  for (auto& rank : job.ranks) rank->die();
  world.run();
  const uint64_t before = journal_bytes();
  ASSERT_EQ(root().query("rm", R"({"target": "tiny"})").exit_code, 0);
  const auto removed = root().query("runs", R"({"removed": true})").json;
  restart_without_tail(before);
  EXPECT_EQ(root().query("runs", "{}").json, "[]");
  EXPECT_EQ(root().query("runs", R"({"removed": true})").json, removed);
  EXPECT_EQ(root().query("verify", "").exit_code, 0);
}

// Reclaimed extents of a deleted commit are no damage of the units that are kept from it.
TEST_F(SalvageTest, DeletionIsRestoredWithItsKeptUnits) {
  Job small(world, 1, {.run = "small", .slab_bytes = 64 << 10});
  small.start();
  small.commit(5);
  small.ranks[0]->begin(10, small.plan({3}));
  world.run();
  small.fill(10);
  world.run();
  small.listen();
  const uint64_t before = journal_bytes();
  const auto pruned = root().query("prune", R"({"target": "small", "rules": {"last": 1}})");
  ASSERT_EQ(pruned.exit_code, 0) << pruned.json;
  world.run();
  const auto log = root().query("log", R"({"target": "small"})").json;
  const auto show = root().query("show", R"({"target": "small@10"})").json;
  restart_without_tail(before);
  EXPECT_EQ(root().query("log", R"({"target": "small"})").json, log);
  EXPECT_EQ(root().query("show", R"({"target": "small@10"})").json, show);
  EXPECT_EQ(root().query("verify", R"({"target": "small"})").exit_code, 0);
  small.start(fb::ResumeMode::Latest);
  EXPECT_EQ(small.ranks[0]->epoch().resume_step, 10u);
  const auto restored = small.ranks[0]->restore(small.whole(10));
  EXPECT_EQ(restored.error, "");
  EXPECT_THAT(restored.steps, ElementsAre(5, 5, 5, 10));
}

TEST_F(SalvageTest, GrantsAreRestored) {
  const auto grant = [&](const std::string& rest) {
    EXPECT_EQ(root().query("grant", R"({"target": "tiny", )" + rest + "}").exit_code, 0);
  };
  grant(R"("user": 7, "rights": ["read"])");
  grant(R"("user": 8, "rights": ["commit"])");
  const uint64_t before = journal_bytes();
  grant(R"("user": 7, "rights": [])");
  grant(R"("user": 8, "rights": ["prune"])");
  grant(R"("user": 9, "rights": ["read"])");
  const auto grants = root().query("grant", R"({"target": "tiny"})").json;
  restart_without_tail(before);
  EXPECT_EQ(root().query("grant", R"({"target": "tiny"})").json, grants);
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  EXPECT_EQ(root().query("grant", R"({"target": "tiny"})").json, grants);
}

TEST_F(SalvageTest, SalvagedCommitWithDamagedBytesIsListedDamaged) {
  const uint64_t last = journal_bytes();
  job.commit(15);
  const FileId file = world.disk().open(kJournalPath, {}).value();
  std::pair<std::string, uint64_t> extent;
  const auto scan = scan_journal_file(world.disk(), file, [&](uint64_t, const auto& record) {
    if (const auto* commit = record.body.AsCommitted(); commit != nullptr && commit->step == 15) {
      extent = {segment_path(commit->extents[0]->segment), commit->extents[0]->offset};
    }
    return Status();
  });
  ASSERT_TRUE(scan.ok());
  world.disk().close(file);
  world.kill_daemon();
  world.disk().flip(extent.first, extent.second + 40);
  world.disk().flip(kJournalPath, last + 200);
  ASSERT_TRUE(world.start().ok());
  const auto log = nlohmann::json::parse(root().query("log", R"({"target": "tiny"})").json);
  EXPECT_EQ(log.at(0).at("step"), 15);
  EXPECT_EQ(log.at(0).at("level"), "damaged");
  const auto verified = root().query("verify", "");
  EXPECT_EQ(verified.exit_code, 4);
  EXPECT_THAT(verified.json, HasSubstr("\"step\":15"));
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 10u);
}

TEST_F(SalvageTest, LostTailOfManyBatchesIsRestored) {
  const uint64_t before = journal_bytes();
  job.commit(15);
  EXPECT_EQ(job.ranks[0]->query("tag", R"({"target": "tiny@10", "tag": "good"})").exit_code, 0);
  job.join(fb::ResumeMode::AtStep, 10);  // epoch 2, lineage 2
  job.commit(12);
  const std::string ask = R"({"target": "tiny"})";
  const auto log = root().query("log", ask).json;
  restart_without_tail(before);
  EXPECT_EQ(root().query("log", ask).json, log);
  EXPECT_THAT(journal_files(),
              ElementsAre("damaged-1.log", "journal.log", "older-journal-is-meant"));
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 12u);
  EXPECT_EQ(job.ranks[0]->epoch().epoch, 3u) << "no number is given out twice";
  EXPECT_EQ(job.ranks[0]->epoch().lineage, 3u);
  const auto rebuilt = root().query("rebuild", "");
  EXPECT_EQ(rebuilt.exit_code, 0) << rebuilt.json;
  EXPECT_EQ(root().query("log", ask).json, log);
}

TEST_F(SalvageTest, TailUnknownToCatalogIsTornWrite) {
  const uint64_t last = journal_bytes();
  ASSERT_EQ(root().query("tag", R"({"target": "tiny@10", "tag": "good"})").exit_code, 0);
  world.lose_catalog();
  restart_with_flip(last + 200);
  EXPECT_THAT(job.log(root()), ElementsAre(10, 5));
  EXPECT_THAT(journal_files(), ElementsAre("journal.log"));
}

// The lost record may have been a commit: the segments have its extents. Then the bytes are kept,
// and the commit is named.
TEST_F(SalvageTest, TailOfPossibleCommitIsKept) {
  const uint64_t last = journal_bytes();
  job.commit(15);
  world.lose_catalog();
  const std::string log = log_of([&] { restart_with_flip(last + 200); });
  EXPECT_THAT(job.log(root()), ElementsAre(10, 5));
  const std::string kept = fmt::format("lost-{}.bytes", last);
  EXPECT_THAT(journal_files(), ElementsAre("journal.log", kept));
  EXPECT_THAT(log, AllOf(HasSubstr("tiny~1@15"), HasSubstr(kept)));
  EXPECT_THAT(log, Not(HasSubstr("tiny~1@10")));
}

// Regression: one line per commit made thousands of lines.
TEST_F(SalvageTest, LogHasOneLinePerRun) {
  Job small(world, 1, {.run = "small", .slab_bytes = 64 << 10});
  small.start();
  const uint64_t before = journal_bytes();
  for (const ckpt::Step step : {15, 20, 25, 30}) job.commit(step);
  for (const ckpt::Step step : {5, 10}) small.commit(step);
  const auto lines_of = [](const std::string& log, const std::string& run) {
    size_t lines = 0;
    for (size_t at = log.find(run); at != std::string::npos; at = log.find(run, at + 1)) ++lines;
    return lines;
  };
  const std::string log = log_of([&] { restart_without_tail(before); });
  EXPECT_THAT(log, HasSubstr("run tiny: the records of 4 commits were put back from the catalog: "
                             "0 lost, 0 with damaged bytes, 0 not checked"));
  EXPECT_THAT(log, HasSubstr("run small: the records of 2 commits were put back"));
  EXPECT_EQ(lines_of(log, "run tiny"), 1u) << log;
  EXPECT_EQ(lines_of(log, "run small"), 1u) << log;
}

}  // namespace
}  // namespace ckptd::testing
