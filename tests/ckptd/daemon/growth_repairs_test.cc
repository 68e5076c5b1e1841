// Growth through restarts, repairs and prunes.

#include "ckptd/history/recovered_store.h"
#include "tests/ckptd/daemon/fragment_place.h"
#include "tests/ckptd/daemon/growth_fixture.h"
#include "tests/ckptd/daemon/store_files.h"

namespace ckptd::testing {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(GrowthTest, GrowthWithoutCommitLeavesNothing) {
  job.commit(5);
  grow(job, {floats("adapter", 100)});
  job.begin(10);
  ASSERT_TRUE(job.ranks[0]->fill(10)) << job.ranks[0]->error();
  world.run();
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  auto next = std::make_unique<Job>(world, 2);
  next->start(fb::ResumeMode::Latest);
  EXPECT_EQ(next->ranks[0]->epoch().resume_step, 5u);
  EXPECT_THAT(told(next->ranks[0]->epoch()), IsEmpty());
  EXPECT_EQ(schema().size(), 4u);
  // The same name may even have another size now.
  grow(*next, {floats("adapter", 200)});
  next->commit(10);
  EXPECT_THAT(shown("tiny@10"), Contains("adapter"));
}

TEST_F(GrowthTest, GrowthWithoutCommitCanBeRepeated) {
  job.commit(5);
  grow(job, {floats("adapter", 100)});
  job.begin(10);
  abort_snapshot(10);
  EXPECT_EQ(schema().size(), 4u);
  job.commit(15);
  EXPECT_EQ(schema().size(), 5u);
}

TEST_F(GrowthTest, SurvivesARestartBeforeTheCommit) {
  job.commit(5);
  grow(job, {floats("adapter", 30'000)});
  job.begin(10);
  ASSERT_TRUE(job.ranks[0]->fill(10)) << job.ranks[0]->error();
  world.run();
  job.listen();
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  for (auto& rank : job.ranks) ASSERT_TRUE(rank->reconnect()) << rank->error();
  world.run();
  ASSERT_TRUE(job.ranks[1]->fill(10)) << job.ranks[1]->error();
  world.run();
  job.listen();
  ASSERT_EQ(job.ranks[0]->snapshot(10).level, fb::SnapshotLevel::Durable)
      << job.ranks[0]->snapshot(10).reason << job.ranks[0]->error();
  expect_grown_views();
}

TEST_F(GrowthTest, SurvivesARebuildOfTheCatalog) {
  grow_and_commit();
  const Json before = ask_root("show", R"({"target": "tiny@10"})");
  const std::vector<std::string> units = schema();
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  EXPECT_EQ(ask_root("show", R"({"target": "tiny@10"})"), before);
  EXPECT_EQ(schema(), units);
  expect_grown_views();
}

TEST_F(GrowthTest, SurvivesASalvageOfTheJournal) {
  job.commit(5);
  const FileId journal = world.disk().open(kJournalPath, {}).value();
  const uint64_t end = world.disk().size(journal).value();
  world.disk().close(journal);
  grow(job, {floats("adapter", 30'000)});
  job.commit(10);
  world.kill_daemon();
  world.disk().flip(kJournalPath, end + 200);
  ASSERT_TRUE(world.start().ok());
  expect_grown_views();
  EXPECT_EQ(schema().back(), "adapter+");
  expect_verified();
}

TEST_F(GrowthTest, LossOfPowerKeepsAllOrNothing) {
  job.commit(5);
  grow(job, {floats("adapter", 30'000)});
  job.begin(10);
  job.fill(10);
  world.lose_power();
  ASSERT_TRUE(world.start().ok());
  const auto next = std::make_unique<Job>(world, 2);
  next->start(fb::ResumeMode::Latest);
  const bool grew = next->ranks[0]->epoch().resume_step == 10;
  EXPECT_EQ(told(next->ranks[0]->epoch()).empty(), !grew);
  EXPECT_EQ(schema().size(), grew ? 5u : 4u);
}

TEST_F(GrowthTest, DamagedGrowthResumesBeforeIt) {
  grow_and_commit();
  commit_units(job, 15, {0, 1});
  const auto [path, offset] = fragment_place(world, 10, kAdapter);
  world.kill_daemon();
  // The header of the extent: recovery marks the commit.
  world.disk().flip(path, place_of_fragment(world, 10, kAdapter).extent_offset + 40);
  world.lose_catalog();  // the start checks every commit
  ASSERT_TRUE(world.start().ok());
  auto next = std::make_unique<Job>(world, 2);
  next->start(fb::ResumeMode::Latest);
  EXPECT_EQ(next->ranks[0]->epoch().resume_step, 5u);
  const auto complete = [this] {
    return ask_root("show", R"({"target": "tiny~1@15"})").at("complete").get<bool>();
  };
  EXPECT_FALSE(complete());
  ask_root("rm", R"({"target": "tiny~1@10"})");
  world.run();
  EXPECT_FALSE(complete()) << "nothing shows any more that the view has the unit";
}

TEST_F(GrowthTest, FirstGrowthRaisesStoreVersion) {
  const auto version = [this] {
    uint32_t read = 0;
    for (const auto& record : journal_records(world.disk())) {
      if (const auto* opened = record.body.AsStoreOpened()) read = opened->format_version;
    }
    return read;
  };
  job.commit(5);
  grow(job, {floats("adapter", 100)});
  job.begin(10);
  EXPECT_LT(version(), 11u);
  job.fill(10);
  world.run();
  EXPECT_EQ(version(), 11u);
}

TEST_F(GrowthTest, PruneKeepsTheVersionThatLaterViewsNeed) {
  grow_and_commit();
  tell(job, {}, 0);
  commit_units(job, 15, {0, 1, 2, 3});
  ask_root("rm", R"({"target": "tiny@10"})");
  world.run();
  expect_view(job, 15, {15, 15, 15, 15, 10});
  EXPECT_THAT(shown("tiny@15"), Contains("adapter"));
  job.commit(20);
  ask_root("rm", R"({"target": "tiny@15"})");
  world.run();
  EXPECT_THAT(shown("tiny@20"), Contains("adapter"));
  expect_verified();
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(shown("tiny@20"), Contains("adapter"));
  EXPECT_THAT(shown("tiny@5"), Not(Contains("adapter")));
}

}  // namespace
}  // namespace ckptd::testing
