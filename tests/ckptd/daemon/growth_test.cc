// Views of runs that grow: from which commit on they have a unit, on which lineage.

#include "tests/ckptd/daemon/growth_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(GrowthTest, UnitBelongsToViewsFromItsCommitOn) {
  grow_and_commit();
  expect_grown_views();
  restart();
  expect_grown_views();
  expect_verified();
  EXPECT_EQ(schema().back(), "adapter+");
}

TEST_F(GrowthTest, LaterPlansNeedNoGrowth) {
  grow_and_commit();
  tell(job, {}, 0);
  job.commit(15);
  commit_units(job, 20, {0, kAdapter});
  expect_view(job, 20, {20, 15, 15, 15, 20});
}

TEST_F(GrowthTest, ResumeOfLatestTellsTheGrowth) {
  grow_and_commit();
  const auto next = resumed(fb::ResumeMode::Latest);
  EXPECT_EQ(next->ranks[1]->epoch().resume_step, 10u);
  EXPECT_THAT(told(next->ranks[1]->epoch()), ElementsAre("4 adapter"));
  next->model = job.model;
  next->commit(15);
  EXPECT_THAT(shown("tiny@15"), Contains("adapter"));
}

TEST_F(GrowthTest, OlderClientIsToldNoGrowth) {
  grow_and_commit();
  for (auto& rank : job.ranks) rank->die();
  world.run();
  Job older(world, 2, {.protocol = 4});
  older.start(fb::ResumeMode::Latest);
  EXPECT_THAT(told(older.ranks[0]->epoch()), IsEmpty());
  older.commit(15);  // the units of its registration
  job.model.pop_back();
  EXPECT_THAT(shown("tiny@15"), Contains("adapter"));
  EXPECT_EQ(ask_root("log", R"({"target": "tiny@15"})").at(0).at("units"), 4);
}

TEST_F(GrowthTest, ForkBeforeTheGrowthGrowsOtherwise) {
  grow_and_commit();
  const auto fork = resumed(fb::ResumeMode::AtStep, 5);
  EXPECT_THAT(told(fork->ranks[0]->epoch()), ElementsAre("4 adapter"));
  fork->model = job.model;
  grow(*fork, {floats("router", 50)});
  fork->save(10, fork->plan({0, 1, 2, 3, kRouter}), fb::SnapshotLevel::Durable);
  EXPECT_THAT(shown("tiny@10"), AllOf(Contains("router"), Not(Contains("adapter"))));
  EXPECT_THAT(shown("tiny~1@10"), AllOf(Contains("adapter"), Not(Contains("router"))));
  const Json log = ask_root("log", R"({"target": "tiny@10"})");
  EXPECT_EQ(log.at(0).at("units"), 5) << log;
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(shown("tiny@10"), AllOf(Contains("router"), Not(Contains("adapter"))));
  EXPECT_THAT(shown("tiny~1@10"), Contains("adapter"));
}

TEST_F(GrowthTest, ForkRepeatsTheGrowthOfItsParent) {
  grow_and_commit();
  const auto fork = resumed(fb::ResumeMode::AtStep, 5);
  fork->model = job.model;
  tell(*fork, {job.model[kAdapter]}, kAdapter);
  fork->commit(10, 1);
  EXPECT_THAT(shown("tiny@10"), Contains("adapter"));
  EXPECT_EQ(schema().size(), 5u);
}

TEST_F(GrowthTest, DiffShowsTheNewUnit) {
  grow_and_commit();
  const Json diff = ask_root("diff", R"({"from": "tiny@5", "to": "tiny@10"})");
  std::vector<std::string> added;
  for (const Json& unit : diff.at("units")) {
    if (unit.at("change") == "added") added.push_back(unit.at("unit"));
  }
  EXPECT_THAT(added, ElementsAre("adapter"));
  EXPECT_EQ(ask_root("diff", R"({"from": "tiny@5", "to": "tiny@5"})").at("units").size(), 0u);
}

TEST_F(GrowthTest, UnitAndLogTellTheGrowth) {
  grow_and_commit();
  const Json log = ask_root("log", R"({"target": "tiny"})");
  EXPECT_EQ(log.at(0).at("grown"), 1) << log;
  EXPECT_FALSE(log.at(1).contains("grown")) << log;
  const Json unit = ask_root("unit", R"({"target": "tiny", "unit": "adapter"})");
  ASSERT_EQ(unit.at("versions").size(), 1u) << unit;
  EXPECT_EQ(unit.at("versions")[0].at("step"), 10);
}

TEST_F(GrowthTest, GrownExpertsShowOnlyWhereTheyAre) {
  job.commit(5);
  grow(job, {expert()});
  job.commit(10);
  const auto experts = [this](const char* target) {
    return ask_root("experts", fmt::format(R"({{"target": "{}"}})", target))
        .at("layers")[0]
        .at("experts")
        .size();
  };
  EXPECT_EQ(experts("tiny@5"), 3u);
  EXPECT_EQ(experts("tiny@10"), 4u);
}

TEST_F(GrowthTest, RestorePlanOfOlderViewLeavesItOut) {
  grow_and_commit();
  const auto bytes = [this](const char* target) {
    const Json plan = ask_root("restore-plan", fmt::format(R"({{"target": "{}"}})", target));
    uint64_t sum = 0;
    for (const Json& source : plan.at("sources")) sum += source.at("bytes").get<uint64_t>();
    return sum;
  };
  EXPECT_EQ(bytes("tiny@10") - bytes("tiny@5"), job.model[kAdapter].bytes);
}

}  // namespace
}  // namespace ckptd::testing
