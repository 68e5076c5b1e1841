// A run whose views were lost to damage is refused, and never begun anew as if it had nothing.
#include <gmock/gmock.h>

#include "ckptd/io/store_paths.h"
#include "ckptd/limits.h"
#include "tests/ckptd/daemon/job.h"
#include "tests/ckptd/daemon/store_files.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr char kTiny[] = R"({"target": "tiny"})";

class LostViewsTest : public ::testing::Test {
 protected:
  LostViewsTest() : world({}), job(world, 1) {
    EXPECT_TRUE(world.start().ok());
    job.start();
  }
  // A segment of its own for what follows. The bytes of segment 1 are lost.
  void lose_first_segment() {
    world.kill_daemon();
    segment_ = file_bytes(world.disk(), segment_path(1));
    EXPECT_TRUE(world.disk().remove(segment_path(1)).ok());
    restart();
  }
  void restart() {
    EXPECT_TRUE(world.start().ok());
    job.ranks.clear();
    job.add_rank();
  }
  // No process trains the run, and none may rejoin its last epoch.
  void leave_run() {
    for (auto& one : job.ranks) one->die();
    job.ranks.clear();
    world.run();
    world.tick(limits::kReopenDeadline + std::chrono::seconds(1));
    world.run();
  }
  FakeTrainer& rank() { return *job.ranks[0]; }
  std::string refusal(fb::ResumeMode mode) {
    rank().join(0, 1, mode);
    world.run();
    EXPECT_FALSE(rank().started());
    return rank().error();
  }
  Json ask(const std::string& verb, const std::string& args = kTiny) {
    FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(root.connect());
    Json answer = Json::parse(root.query(verb, args).json);
    root.die();
    world.run();
    return answer;
  }
  void expect_all_refused() {
    for (const auto mode :
         {fb::ResumeMode::Continue, fb::ResumeMode::Latest, fb::ResumeMode::Start}) {
      EXPECT_THAT(refusal(mode), lost_) << static_cast<int>(mode);
    }
  }
  void save(ckpt::Step step, const std::vector<ckpt::UnitId>& units) {
    job.save(step, job.plan(units), fb::SnapshotLevel::Durable);
  }

  World world;
  Job job;
  std::vector<std::byte> segment_;
  const ::testing::Matcher<std::string> lost_ =
      AllOf(HasSubstr("run tiny: no view of lineage 1 is complete, and tiny~1@"),
            HasSubstr("is damaged: "), HasSubstr("or give the run up: ckptctl rm tiny"));
};

TEST_F(LostViewsTest, NoTrainingBeginsUntilBytesAreBack) {
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  lose_first_segment();
  expect_all_refused();
  EXPECT_THAT(refusal(fb::ResumeMode::Continue),
              HasSubstr("put segments/000001.seg back and restart ckptd"));
  const auto shown = rank().query("show", kTiny);
  EXPECT_EQ(shown.exit_code, 4);
  EXPECT_THAT(shown.json, lost_);
  fb::OpenRestoreT latest;
  latest.latest = true;
  EXPECT_THAT(rank().restore(latest).error, lost_);

  world.kill_daemon();
  put_file(world.disk(), segment_path(1), segment_);
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Continue);
  EXPECT_EQ(rank().epoch().resume_step, 10u);
}

// The start itself knows of the damage: no pass of scrub has read anything.
TEST_F(LostViewsTest, HealthTellsWhatTheStartFound) {
  job.commit(5);
  lose_first_segment();
  const Json status = ask("status", "{}");
  ASSERT_EQ(status.at("conditions").size(), 1u) << status;
  const Json& condition = status.at("conditions").at(0);
  EXPECT_EQ(condition.at("name"), "damaged_data");
  EXPECT_THAT(condition.at("reason").get<std::string>(),
              HasSubstr("1 commit is damaged on the disk, the newest tiny~1@5: "));
  EXPECT_THAT(condition.at("remedy").get<std::string>(), HasSubstr("put segments/000001.seg back"));
  leave_run();
  const Json removed = ask("rm");
  EXPECT_TRUE(removed.contains("removed")) << removed;
  EXPECT_TRUE(ask("status", "{}").at("conditions").empty());
}

TEST_F(LostViewsTest, PruneKeepsWhatMayComeBack) {
  for (const ckpt::Step step : {5, 10, 15}) job.commit(step);
  lose_first_segment();
  const Json pruned = ask("prune", R"({"target": "tiny", "rules": {"last": 1}})");
  EXPECT_EQ(pruned.at("removed"), Json::array());
  EXPECT_EQ(pruned.at("kept").size(), 3u);
  expect_all_refused();
}

// The partial commits that are left do not make a run that has never had a view.
TEST_F(LostViewsTest, RemovedDamageIsStillRemembered) {
  job.commit(5);
  save(10, {0, 1});
  world.kill_daemon();
  // Only the first commit is spoiled.
  for (uint64_t at = 4096; at < 8192; ++at) world.disk().flip(segment_path(1), at);
  world.lose_catalog();
  restart();
  EXPECT_THAT(refusal(fb::ResumeMode::Continue), HasSubstr("tiny~1@5 is damaged"));
  const auto view = rank().query("show", R"({"target": "tiny@10"})");
  EXPECT_EQ(view.exit_code, 0);
  EXPECT_THAT(Json::parse(view.json).at("lost").get<std::string>(),
              AllOf(HasSubstr("its version of tiny~1@5 is damaged"),
                    HasSubstr("put a good copy of the segment file back")));
  leave_run();
  const Json removed = ask("rm", R"({"target": "tiny@5", "force": true})");
  EXPECT_EQ(removed.value("removed", Json::array()).size(), 1u) << removed;
  job.add_rank();
  EXPECT_THAT(refusal(fb::ResumeMode::Continue), HasSubstr("tiny~1@5 is damaged"));
  leave_run();
  ask("rm", R"({"target": "tiny@10", "force": true})");
  job.add_rank();
  rank().join(0, 1, fb::ResumeMode::Continue);
  world.run();
  EXPECT_TRUE(rank().started()) << "every commit was removed on purpose: " << rank().error();
}

TEST_F(LostViewsTest, AWholeViewOfAnotherLineageIsNamed) {
  job.commit(5);
  job.commit(60);
  job.join(fb::ResumeMode::AtStep, 5);
  ASSERT_EQ(rank().epoch().lineage, 2u);
  world.kill_daemon();
  for (uint64_t at = 4096; at < 8192; ++at) world.disk().flip(segment_path(1), at);
  world.lose_catalog();
  restart();
  EXPECT_THAT(refusal(fb::ResumeMode::Continue),
              AllOf(HasSubstr("no view of lineage 2 is complete, and tiny~1@5 is damaged"),
                    HasSubstr("or go on from tiny~1@60, which is complete in another lineage"),
                    Not(HasSubstr("ckptctl rm"))));
}

}  // namespace
}  // namespace ckptd::testing
