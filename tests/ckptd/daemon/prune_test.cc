// Prune through the daemon: kept views restore bit for bit, deleted commits have a reason, and a
// rebuilt catalog gives the same answers.
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(PruneTest, KeptViewsKeepTheVersionsTheyNeed) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  commit_units(job, 10, {0, 1});
  commit_units(job, 15, {0, 2});
  const Json shown = ask(job, "show", R"({"target": "tiny@15"})");
  const Json pruned = ask(job, "prune", kLast1);
  ASSERT_EQ(pruned.at("kept").size(), 1u);
  EXPECT_EQ(pruned.at("kept").at(0).at("step"), 15);
  ASSERT_EQ(pruned.at("removed").size(), 2u);
  EXPECT_EQ(pruned.at("removed").at(0).at("step"), 10);
  EXPECT_EQ(pruned.at("removed").at(0).at("units_left"), 1);  // unit 1
  EXPECT_EQ(pruned.at("removed").at(1).at("units_left"), 1);  // unit 3
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(15));
  EXPECT_EQ(ask(job, "show", R"({"target": "tiny@15"})"), shown);
  EXPECT_THAT(job.ranks[0]->restore(job.whole(10)).error, HasSubstr("deleted: no rule keeps it"));
  restart();
  expect_view(job, 15, {15, 10, 15, 5});
  expect_verified();
}

TEST_F(PruneTest, LaterPruneRemovesUnneededUnits) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  commit_units(job, 10, {0, 1, 2});
  ask(job, "prune", kLast1);
  job.commit(15);
  const Json again = ask(job, "prune", kLast1);
  ASSERT_EQ(again.at("removed").size(), 2u) << again;
  EXPECT_EQ(again.at("removed").at(0).at("step"), 10);
  EXPECT_EQ(again.at("removed").at(0).at("again"), false);
  EXPECT_EQ(again.at("removed").at(1).at("step"), 5);
  EXPECT_EQ(again.at("removed").at(1).at("again"), true);
  EXPECT_EQ(again.at("removed").at(1).at("units_left"), 0);
  EXPECT_THAT(ask(job, "prune", kLast1).at("removed"), IsEmpty());
  restart();
  expect_view(job, 15, {15, 15, 15, 15});
  expect_verified();
}

TEST_F(PruneTest, DryRunGivesReasonsAndChangesNothing) {
  Job job(world, 1);
  job.start();
  for (const ckpt::Step step : {5, 10, 15}) job.commit(step);
  ask(job, "tag", R"({"target": "tiny@5", "tag": "good"})");
  ask(job, "pin", R"({"target": "tiny@10"})");
  const uint64_t before = used();
  const Json dry =
      ask(job, "prune", R"({"target": "tiny", "dry_run": true, "rules": {"last": 1}})");
  EXPECT_THAT(dry.at("kept").at(0).at("reasons"), ElementsAre("newest complete view", "last"));
  EXPECT_THAT(dry.at("kept").at(1).at("reasons"), ElementsAre("pinned"));
  EXPECT_EQ(dry.at("removed").at(0).at("reason"), "no rule keeps it");
  EXPECT_THAT(dry.at("removed").at(0).at("tags"), ElementsAre("good"));
  EXPECT_EQ(dry.at("bytes"), 331'000);  // one version of each unit
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(15, 10, 5));
  EXPECT_EQ(used(), before);
  // With the tag among the rules the commit would stay.
  const Json tagged =
      ask(job, "prune",
          R"({"target": "tiny", "dry_run": true, "rules": {"last": 1, "tags": ["good"]}})");
  EXPECT_THAT(tagged.at("removed"), IsEmpty());
}

TEST_F(PruneTest, StoredRulesSurviveRestartAndApply) {
  Job job(world, 1);
  job.start();
  for (const ckpt::Step step : {5, 10, 15}) job.commit(step);
  ask(job, "prune", R"({"target": "tiny"})", 1);  // no rules: nothing is removed by mistake
  ask(job, "prune", R"({"target": "tiny", "rules": {}})", 1);
  ask(job, "prune", R"({"target": "tiny", "rules": {"lost": 1}})", 2);
  ask(job, "prune", R"({"target": "tiny", "rules": {"last": -1}})", 2);
  ask(job, "prune", R"({"target": "tiny@5", "rules": {"last": 1}})", 2);
  ask(job, "prune", R"({"target": "nobody", "rules": {"last": 1}})", 3);
  ask(job, "keep", R"({"target": "tiny", "rules": {"best": [{"metric": "loss", "count": 1}]}})");
  restart();
  job.start(fb::ResumeMode::Latest);
  const Json rules = ask(job, "keep", R"({"target": "tiny"})").at("rules");
  EXPECT_EQ(rules.at("best").at(0).at("metric"), "loss");
  EXPECT_EQ(rules.at("last"), 0);
  ask(job, "prune", R"({"target": "tiny"})");
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(15)) << "its loss is the lowest";
}

// The view of a snapshot that is being taken stays restorable, although no existing commit shows
// these versions any more.
TEST_F(PruneTest, OvertakenSnapshotKeepsItsView) {
  Job job(world, 2, {.arena_bytes = 4u << 20});
  job.start();
  job.commit(5);
  for (auto& rank : job.ranks) rank->begin(10, job.plan({0, 3}));
  world.run();
  ASSERT_TRUE(job.ranks[0]->fill(10));
  job.commit(15);
  ask(job, "prune", kLast1);
  ask_root("gc", "{}");
  ASSERT_TRUE(job.ranks[1]->fill(10));
  world.run();
  job.listen();
  ASSERT_EQ(job.ranks[0]->snapshot(10).level, fb::SnapshotLevel::Durable);
  expect_view(job, 10, {10, 5, 5, 10});
  expect_view(job, 15, {15, 15, 15, 15});
  ask(job, "rm", R"({"target": "tiny@10"})");
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(15));
  expect_verified();
}

TEST_F(PruneTest, RebuildGivesSameAnswersAfterPrune) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  commit_units(job, 10, {0, 1});
  ask(job, "tag", R"({"target": "tiny@5", "tag": "first"})");
  ask(job, "keep", R"({"target": "tiny", "rules": {"last": 1, "within_seconds": 3600}})");
  ask(job, "prune", kLast1);
  ask(job, "tag", R"({"target": "tiny@10", "tag": "second"})");
  ask(job, "pin", R"({"target": "tiny@10"})");
  const auto documents = [&] {
    std::vector<Json> all;
    for (const auto& [verb, args] :
         std::map<std::string, std::string>{{"log", R"({"target": "tiny"})"},
                                            {"show", R"({"target": "tiny@second"})"},
                                            {"keep", R"({"target": "tiny"})"},
                                            {"runs", "{}"},
                                            {"unit", R"({"target": "tiny", "unit": "trainer"})"}}) {
      all.push_back(ask_root(verb, args));
    }
    all.push_back(ask_root("log", R"({"target": "tiny", "deleted": true})"));
    return all;
  };
  const auto before = documents();
  EXPECT_THAT(before[1].at(0).at("tags"), ElementsAre("second"));
  EXPECT_EQ(before.back().at(0).at("reason"), "no rule keeps it");
  EXPECT_EQ(before.back().at(0).at("step"), 5);
  ask_root("rebuild", "");
  EXPECT_EQ(documents(), before);
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  world.run();
  EXPECT_EQ(documents(), before);
  expect_view(job, 10, {10, 10, 5, 5});
}

TEST_F(PruneTest, StepWithNeededUnitsIsNotReused) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  commit_units(job, 10, {0, 1});
  ask(job, "prune", kLast1);
  job.ranks[0]->begin(5, job.plan(job.all_units()), 77);
  world.run();
  EXPECT_THAT(job.ranks[0]->error(), HasSubstr("views of later commits need"));
  expect_view(job, 10, {10, 10, 5, 5});
}

TEST_F(PruneTest, ResumePointOfCurrentLineageStays) {
  Job job(world, 1);
  job.start();
  for (const ckpt::Step step : {5, 10, 15}) job.commit(step);
  job.ranks[0]->die();
  job.start(fb::ResumeMode::AtStep, 10);
  commit_units(job, 20, {0});
  const Json pruned = ask(job, "prune", kLast1);
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(20, 10)) << pruned;
  expect_view(job, 20, {20, 10, 10, 10});
}

TEST_F(PruneTest, OtherUsersMayNotPrune) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  FakeTrainer stranger(world, {.uid = 99, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(stranger.connect());
  EXPECT_EQ(stranger.query("prune", kLast1).exit_code, 3) << "a run that may not be seen";
  EXPECT_EQ(stranger.query("keep", R"({"target": "tiny"})").exit_code, 3);
  EXPECT_EQ(stranger.query("pin", R"({"target": "tiny@5"})").exit_code, 3);
  EXPECT_EQ(stranger.query("gc", "{}").exit_code, 1);
}

}  // namespace
}  // namespace ckptd::testing
