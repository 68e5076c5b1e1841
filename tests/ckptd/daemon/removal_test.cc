// Removal of named runs and commits: who may remove them, what protects them, and that no state of
// a removed run returns or stays on the disk.
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kTiny[] = R"({"target": "tiny"})";
constexpr char kTinyForce[] = R"({"target": "tiny", "force": true})";

class RemovalTest : public PruneTest {
 protected:
  RemovalTest() : PruneTest({.segment_bytes = 768u << 10}) {}

  // Makes a run with these commits that no job trains any more.
  void train(const std::vector<ckpt::Step>& steps, uint64_t salt = 0) {
    Job job(world, 2);
    job.start();
    for (const ckpt::Step step : steps) job.commit(step, salt);
    leave(job);
  }
  void leave(Job& job) {
    for (auto& rank : job.ranks) rank->send(fb::LeaveGroupT());
    for (auto& rank : job.ranks) rank->die();
    world.run();
  }
  // Asks as the user who trains.
  fb::QueryReplyT user_asks(const std::string& verb, const std::string& args) {
    FakeTrainer user(world, {.arena_bytes = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(user.connect());
    auto reply = user.query(verb, args);
    user.die();
    world.run();
    return reply;
  }
  std::string refusal(const std::string& verb, const std::string& args) {
    const auto reply = user_asks(verb, args);
    EXPECT_EQ(reply.exit_code, 1) << reply.json;
    return Json::parse(reply.json).value("error", "");
  }
};

TEST_F(RemovalTest, RemovedRunFreesItsSpaceAndName) {
  train({5, 10, 15});
  const uint64_t before = used();
  const Json dry = ask_root("rm", R"({"target": "tiny", "dry_run": true})");
  EXPECT_EQ(dry.at("removed").size(), 3u);
  EXPECT_EQ(dry.at("bytes"), 3 * 331'000);
  EXPECT_EQ(ask_root("runs", "{}").size(), 1u) << "a dry run changes nothing";

  const auto reply = user_asks("rm", kTiny);
  ASSERT_EQ(reply.exit_code, 0) << reply.json;
  EXPECT_EQ(Json::parse(reply.json).at("removed").at(0).at("reason"), "removed by user 54321");
  EXPECT_THAT(ask_root("runs", "{}"), IsEmpty());
  const Json removed = ask_root("runs", R"({"removed": true})");
  ASSERT_EQ(removed.size(), 1u);
  EXPECT_EQ(removed.at(0).at("run"), "tiny");
  EXPECT_EQ(removed.at(0).at("commits"), 3);
  EXPECT_EQ(removed.at(0).at("bytes"), 3 * 331'000);
  EXPECT_EQ(removed.at(0).at("reason"), "removed by user 54321");
  EXPECT_EQ(user_asks("log", kTiny).exit_code, 3);
  EXPECT_EQ(user_asks("rm", kTiny).exit_code, 3);
  EXPECT_LE(used() + 3 * 331'000, before);

  // A new run takes the name, and has no state of the old run.
  train({5}, /*salt=*/7);
  for (int start = 0; start < 3; ++start) {
    if (start == 1) restart();
    if (start == 2) ask_root("rebuild", "");
    EXPECT_EQ(ask_root("log", kTiny).size(), 1u);
    EXPECT_EQ(ask_root("runs", R"({"removed": true})"), removed);
    Job reader(world, 1);
    reader.add_rank();
    reader.expect_restores(*reader.ranks[0], 5, /*salt=*/7);
    reader.ranks[0]->die();
    world.run();
    expect_verified();
  }
}

TEST_F(RemovalTest, TagsAndPinsProtectCommitsWithoutForce) {
  train({5, 10, 15});
  ask_root("tag", R"({"target": "tiny@5", "tag": "good"})");
  ask_root("pin", R"({"target": "tiny@10"})");
  EXPECT_THAT(refusal("rm", kTiny),
              HasSubstr("tag good of tiny~1@5, tiny~1@10 is pinned; --force"));
  EXPECT_THAT(refusal("rm", R"({"target": "tiny@5"})"),
              HasSubstr("tiny~1@5: it is kept: tag good; --force"));
  EXPECT_THAT(refusal("rm", R"({"target": "tiny@10"})"), HasSubstr("it is kept: pinned; --force"));
  EXPECT_THAT(refusal("rm", R"({"target": "tiny@latest"})"), HasSubstr("newest complete view"));
  EXPECT_EQ(ask_root("log", kTiny).size(), 3u);

  ask_root("rm", R"({"target": "tiny@5", "force": true})");
  ask_root("rm", R"({"target": "tiny@10", "force": true})");
  EXPECT_EQ(user_asks("show", R"({"target": "tiny@good"})").exit_code, 3);
  EXPECT_THAT(ask_root("keep", kTiny).at("pins"), IsEmpty());
  const Json log = ask_root("log", R"({"target": "tiny", "deleted": true})");
  ASSERT_EQ(log.size(), 2u);
  EXPECT_EQ(log.at(0).at("reason"), "removed by user 0");
  ask_root("rm", kTinyForce);
  EXPECT_THAT(ask_root("runs", "{}"), IsEmpty());
}

// A model that diverged: the newest commit is removed, and the run resumes from the one before.
TEST_F(RemovalTest, ForceRemovesNewestCommitOfIdleRun) {
  train({5, 10, 15});
  const uint64_t before = used();
  ask_root("rm", R"({"target": "tiny@15", "force": true})");
  EXPECT_LE(used() + 331'000, before) << "nothing builds on it";
  Job job(world, 1);
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 10u);
  // While a job trains, the commit that it resumed from stays, even with force.
  EXPECT_THAT(refusal("rm", R"({"target": "tiny@10", "force": true})"), HasSubstr("not even"));
  commit_units(job, 20, {0, 1});
  ask(job, "rm", R"({"target": "tiny@5"})");
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(20, 10));
  expect_view(job, 20, {20, 20, 10, 10});
}

TEST_F(RemovalTest, UnitsThatOtherViewsNeedStay) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  commit_units(job, 10, {0, 1});
  commit_units(job, 15, {0});
  const Json removed = ask(job, "rm", R"({"target": "tiny@10"})");
  ASSERT_EQ(removed.at("removed").size(), 1u);
  EXPECT_EQ(removed.at("removed").at(0).at("units_left"), 1) << "unit 1";
  restart();
  expect_view(job, 5, {5, 5, 5, 5});
  expect_view(job, 15, {15, 10, 5, 5});
  expect_verified();
}

TEST_F(RemovalTest, RunInUseIsNotRemoved) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  EXPECT_THAT(refusal("rm", kTinyForce),
              AllOf(HasSubstr("it is in use: session"), HasSubstr("; stop that job first")));
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  world.run();
  EXPECT_THAT(refusal("rm", kTiny), HasSubstr("30 s from the daemon's start to rejoin"));
  world.tick(std::chrono::milliseconds(1));
  world.tick(std::chrono::milliseconds(40'000));
  EXPECT_EQ(user_asks("rm", kTiny).exit_code, 0);
  FakeTrainer stranger(world, {.uid = 99, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(stranger.connect());
  EXPECT_EQ(stranger.query("rm", kTiny).exit_code, 3);
  EXPECT_THAT(Json::parse(stranger.query("runs", R"({"removed": true})").json), IsEmpty());
}

TEST_F(RemovalTest, ARestoreInFlightKeepsItsBytes) {
  train({5});
  restart();
  world.tick(std::chrono::milliseconds(1));
  world.tick(std::chrono::milliseconds(40'000));
  Job job(world, 1);
  FakeTrainer reader(world, {.run = "other"});
  ASSERT_TRUE(reader.connect());
  reader.send(job.whole(5));
  const auto opened = reader.take<fb::RestoreOpenedT>();
  ASSERT_TRUE(opened.has_value());
  const uint64_t before = used();
  ask_root("rm", kTiny);
  EXPECT_EQ(ask_root("gc", "{}").at("deletions_waiting"), 1);
  EXPECT_GE(used() + 100'000, before);
  reader.die();
  world.run();
  EXPECT_LE(used() + 331'000, before);
}

// The tombstone is durable or not: after a power loss the run has all its commits, or is gone.
TEST_F(RemovalTest, RemovalIsAtomicUnderPowerLoss) {
  size_t gone = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    World fresh({.seed = seed, .segment_bytes = 768u << 10});
    ASSERT_TRUE(fresh.start().ok());
    Job job(fresh, 1);
    job.start();
    for (ckpt::Step step = 1; step <= 4; ++step) job.commit(step);
    job.ranks[0]->send(fb::LeaveGroupT());
    job.ranks[0]->die();
    fresh.run();
    FakeTrainer root(fresh, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    ASSERT_TRUE(root.connect());
    fb::QueryT query;
    query.verb = "rm";
    query.args = kTiny;
    root.send(std::move(query));
    for (uint64_t polls = seed % 10; polls > 0; --polls) fresh.daemon().poll();
    seed % 3 == 0 ? fresh.kill_daemon() : fresh.lose_power();
    if (seed % 5 == 0) fresh.lose_catalog();
    ASSERT_TRUE(fresh.start().ok()) << "seed " << seed;
    fresh.run();
    FakeTrainer after(fresh, {.uid = 0, .arena_bytes = 2u << 20});
    ASSERT_TRUE(after.connect());
    const Json runs = Json::parse(after.query("runs", "{}").json);
    if (runs.empty()) {
      ++gone;
    } else {
      for (ckpt::Step step = 1; step <= 4; ++step) {
        ASSERT_NO_FATAL_FAILURE(job.expect_restores(after, step)) << "seed " << seed;
      }
    }
    const auto verified = after.query("verify", "{}");
    EXPECT_EQ(verified.exit_code, 0) << "seed " << seed << ": " << verified.json;
  }
  EXPECT_GT(gone, 3u);
  EXPECT_LT(gone, 30u);
}

}  // namespace
}  // namespace ckptd::testing
