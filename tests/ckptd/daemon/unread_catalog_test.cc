// A catalog that cannot be read for a long time: the daemon draws no conclusion from missing
// answers. It does not register, open, begin or hold anything that the history may contradict, and
// a start deletes nothing.
#include <gmock/gmock.h>

#include "formats/wire/convert.h"
#include "tests/ckptd/daemon/saved_run_fixture.h"
#include "tests/ckptd/daemon/store_files.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

constexpr char kTarget[] = R"({"target": "tiny"})";

class UnreadCatalogTest : public SavedRunTest {
 protected:
  void break_catalog(ckpt::ErrorCode code = ckpt::ErrorCode::kUnavailable) {
    world.catalog().set_reads(ckpt::make_error(code, "catalog: Too many open files"));
  }
  // Also queries the catalog, so that the daemon notices.
  void break_and_notice() {
    break_catalog();
    EXPECT_EQ(root().query("log", kTarget).exit_code, 1);
  }
  void repair_catalog() {
    world.catalog().set_reads({});
    for (int i = 0; i < 70; ++i) world.tick(1s);
    world.run();
  }
  void expect_recovers(const std::vector<ckpt::Step>& steps) {
    const auto rebuilt = root().query("rebuild", "");
    EXPECT_EQ(rebuilt.exit_code, 0) << rebuilt.json;
    world.kill_daemon();
    world.lose_catalog();
    const Status started = world.start();
    ASSERT_TRUE(started.ok()) << started.error().message;
    EXPECT_EQ(job.log(root()), steps);
  }
};

// Regression: two RunCreated records of one name were durable, and no start could replay them.
TEST_F(UnreadCatalogTest, NoRunIsCreatedTwice) {
  break_and_notice();
  Job other(world, 2, {.run = "other"});
  for (ckpt::Rank rank = 0; rank < 2; ++rank) {
    other.ranks.push_back(std::make_unique<FakeTrainer>(world, other.options));
    ASSERT_TRUE(other.ranks[rank]->connect());
    EXPECT_FALSE(other.ranks[rank]->register_units(other.model));
    EXPECT_THAT(other.ranks[rank]->error(), HasSubstr("the catalog cannot be read"));
  }
  repair_catalog();
  other.start();
  other.commit(5);
  expect_recovers({10, 5});
}

// The same if the catalog could not apply the RunCreated record itself.
TEST_F(UnreadCatalogTest, RunMissingInCatalogIsNotRecreated) {
  Job other(world, 1, {.run = "other"});
  FakeTrainer first(world, other.options);
  FakeTrainer second(world, other.options);
  ASSERT_TRUE(first.connect());
  ASSERT_TRUE(second.connect());
  fb::RegisterUnitsT body;
  for (size_t i = 0; i < other.model.size(); ++i) {
    body.units.push_back(std::make_unique<fb::UnitT>(
        ckpt::wire::to_fb(other.model[i], static_cast<ckpt::UnitId>(i))));
  }
  FakeTrainer asker(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(asker.connect());
  first.send(body);  // in flight to the journal when the catalog breaks
  break_catalog();
  fb::QueryT query;
  query.verb = "log";
  query.args = kTarget;
  asker.send(query);
  world.run();
  EXPECT_THAT(first.error(), HasSubstr("the catalog cannot be read"));
  second.send(body);
  world.run();
  EXPECT_THAT(second.error(), HasSubstr("the catalog cannot be read"));
  repair_catalog();
  other.start();
  other.commit(5);
  expect_recovers({10, 5});
}

// Regression: survivors need no resume point, so the catalog's health was not checked.
TEST_F(UnreadCatalogTest, NoEpochIsOpened) {
  Job elastic(world, 3, {.run = "elastic", .elastic = true});
  elastic.start();
  elastic.ranks.back()->die();
  elastic.ranks.pop_back();
  world.run();
  break_and_notice();
  for (ckpt::Rank rank = 0; rank < 2; ++rank) {
    elastic.ranks[rank]->join(rank, 2, fb::ResumeMode::GoOn);
    job.ranks[rank]->join(rank, 2, fb::ResumeMode::Latest);
  }
  world.run();
  for (Job* one : {&elastic, &job}) {
    EXPECT_FALSE(one->ranks[0]->started());
    EXPECT_THAT(one->ranks[0]->error(), HasSubstr("the catalog cannot be read"));
  }
  repair_catalog();
  elastic.join(fb::ResumeMode::GoOn);
  elastic.commit(5);
  job.start(fb::ResumeMode::Latest);
  job.commit(15);
  expect_recovers({15, 10, 5});
}

// Regression: an unreadable commit was taken for missing, so a new commit replaced it and its bytes
// were punched.
TEST_F(UnreadCatalogTest, NoCommitIsReplaced) {
  break_catalog();
  for (auto& rank : job.ranks) rank->begin(10, job.plan(job.all_units()), 99);
  world.run();
  for (auto& rank : job.ranks) {
    EXPECT_THAT(rank->error(), HasSubstr("the catalog cannot be read"));
  }
  repair_catalog();
  job.expect_restores(*job.ranks[0], 10);
  job.expect_restores(*job.ranks[0], 5);
}

// Regression: an older commit was held, or an intact commit was reported damaged.
TEST_F(UnreadCatalogTest, HoldNeedsReadableCatalog) {
  job.join(fb::ResumeMode::Latest);
  job.commit(15);
  for (const ckpt::ErrorCode code : {ckpt::ErrorCode::kUnavailable, ckpt::ErrorCode::kCorrupt}) {
    for (const bool latest : {true, false}) {
      break_catalog(code);
      fb::HoldCommitT body;
      body.run = "tiny";
      body.step = latest ? 0 : 15;
      body.latest = latest;
      FakeTrainer& reader = root();
      reader.send(body);
      world.run();
      const auto held = reader.take<fb::CommitHeldT>();
      if (code == ckpt::ErrorCode::kUnavailable) {
        EXPECT_FALSE(held);
        EXPECT_THAT(reader.error(), HasSubstr("the catalog cannot be read"));
      } else {
        ASSERT_TRUE(held) << "healed: " << reader.error();
        EXPECT_EQ(held->step, 15u);
      }
      repair_catalog();
    }
  }
}

TEST_F(UnreadCatalogTest, RulesNeedReadableCatalog) {
  break_catalog();
  const auto kept = root().query(
      "keep", R"({"target": "tiny", "rules": {"best": [{"metric": "loss", "count": 1}]}})");
  EXPECT_EQ(kept.exit_code, 1);
  EXPECT_THAT(kept.json, AllOf(HasSubstr("the catalog cannot be read"), Not(HasSubstr("loss"))));
}

// Regression: unreadable pins were reported as an empty list.
TEST_F(UnreadCatalogTest, UnreadablePinsAreNotListedEmpty) {
  FakeTrainer& asker = root();
  EXPECT_EQ(asker.query("pin", R"({"target": "tiny@5"})").exit_code, 0);
  break_catalog();
  const auto keep = asker.query("keep", kTarget);
  EXPECT_EQ(keep.exit_code, 1) << keep.json;
  repair_catalog();
  EXPECT_THAT(root().query("keep", kTarget).json, HasSubstr(R"("step":5)"));
}

// The commit is durable whether or not the catalog can be read.
TEST_F(UnreadCatalogTest, NewCommitUpdatesLastDurableStep) {
  job.begin(15);
  job.fill(15);
  break_catalog();
  world.run();
  job.listen();
  EXPECT_EQ(job.ranks[0]->snapshot(15).level, fb::SnapshotLevel::Durable);
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("ckptd_run_step{run=\"tiny\"} 15\n"));
  repair_catalog();
  expect_recovers({15, 10, 5});
}

// Regression: a start that could not read the catalog emptied it and lost the findings of scrub.
TEST_F(UnreadCatalogTest, StartFailsDuringShortageAndKeepsCatalog) {
  world.kill_daemon();
  const size_t batches = world.catalog().batches();
  break_catalog();
  const Status started = world.start();
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ckpt::ErrorCode::kUnavailable);
  EXPECT_EQ(world.catalog().batches(), batches);
  world.catalog().set_reads({});
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(job.log(root()), ElementsAre(10, 5));
}

TEST_F(UnreadCatalogTest, StartRebuildsDamagedCatalog) {
  for (const ckpt::ErrorCode code : {ckpt::ErrorCode::kCorrupt, ckpt::ErrorCode::kIo}) {
    world.kill_daemon();
    break_catalog(code);
    const Status started = world.start();
    ASSERT_TRUE(started.ok()) << started.error().message;
    EXPECT_THAT(job.log(root()), ElementsAre(10, 5));
  }
}

// Regression: the advice was to truncate the journal or to move the catalog, the last copy, away.
TEST_F(UnreadCatalogTest, SalvageDuringShortageAdvisesNoTruncation) {
  const FileId file = world.disk().open(kJournalPath, {}).value();
  const uint64_t before =
      scan_journal_file(world.disk(), file, [](uint64_t, const auto&) { return Status(); })
          .value()
          .end.offset;
  world.disk().close(file);
  job.commit(15);
  job.commit(20);
  world.kill_daemon();
  world.disk().flip(kJournalPath, before + 200);
  break_catalog();
  const Status started = world.start();
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ckpt::ErrorCode::kUnavailable);
  EXPECT_THAT(started.error().message, AllOf(Not(HasSubstr("truncate")), Not(HasSubstr("move"))));
  world.catalog().set_reads({});
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(job.log(root()), ElementsAre(20, 15, 10, 5));
}

}  // namespace
}  // namespace ckptd::testing
