// Holds of readers on views: prunes and removals leave a held view alone, a held view restores bit
// for bit, and a hold ends with its reader or its lease.
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uid_t kOther = 54'322;

class HoldsTest : public PruneTest {
 protected:
  HoldsTest() : PruneTest({.segment_bytes = 768u << 10}), job(world, 1) {
    job.start();
    for (const ckpt::Step step : {5, 10, 15}) job.commit(step);
  }
  std::unique_ptr<FakeTrainer> reader(uid_t uid = 54'321) {
    auto one = std::make_unique<FakeTrainer>(
        world, FakeTrainer::Options{.uid = uid, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(one->connect());
    return one;
  }
  // The error of the request; empty if the hold is granted.
  std::string hold(FakeTrainer& trainer, ckpt::Step step) {
    fb::HoldCommitT body;
    body.run = "tiny";
    body.step = step;
    return hold(trainer, body);
  }
  std::string hold(FakeTrainer& trainer, const fb::HoldCommitT& body) {
    trainer.send(body);
    world.run();
    const auto held = trainer.take<fb::CommitHeldT>();
    if (!held) return trainer.error();
    last_hold = held->hold;
    last_step = held->step;
    EXPECT_EQ(held->lease_ms, 60'000u);
    return "";
  }
  std::vector<ckpt::Step> listed() { return job.log(*job.ranks[0]); }
  // Advances the time by a second at a time, and runs the daemon after each.
  void advance(std::chrono::seconds time) {
    for (std::chrono::seconds passed{0}; passed < time; passed += std::chrono::seconds(1)) {
      world.tick(std::chrono::seconds(1));
      world.run();
    }
  }
  std::string refusal(const std::string& verb, const std::string& args) {
    return ask(job, verb, args, 1).value("error", "");
  }

  Job job;
  uint64_t last_hold = 0;
  ckpt::Step last_step = 0;
};

TEST_F(HoldsTest, PruneKeepsHeldCommitAndNamesHolder) {
  const auto one = reader();
  ASSERT_EQ(hold(*one, 5), "");
  const Json pruned = ask(job, "prune", kLast1);
  EXPECT_THAT(listed(), ElementsAre(15, 5));
  EXPECT_EQ(pruned.at("kept").at(1).at("step"), 5);
  const std::string reason = pruned.at("kept").at(1).at("reasons").at(0);
  EXPECT_THAT(reason, HasSubstr("held by"));
  EXPECT_THAT(reason, HasSubstr("user 54321) since 20"));
  EXPECT_THAT(pruned.at("notes").at(0).get<std::string>(), HasSubstr("tiny~1@5 is kept although"));
  job.expect_restores(*one, 5);
  const Json status = ask_root("status", "");
  ASSERT_EQ(status.at("holds").size(), 1u);
  EXPECT_EQ(status.at("holds").at(0).at("step"), 5);
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("\nckptd_holds 1\n"));

  fb::ReleaseHoldT release;
  release.hold = last_hold;
  one->post(release);
  world.run();
  EXPECT_THAT(ask(job, "prune", kLast1).at("notes"), IsEmpty());
  EXPECT_THAT(listed(), ElementsAre(15));
}

TEST_F(HoldsTest, OnlyRootForcesRemovalOfHeldCommit) {
  const auto one = reader();
  ASSERT_EQ(hold(*one, 10), "");
  constexpr char kForce[] = R"({"target": "tiny@10", "force": true})";
  EXPECT_THAT(refusal("rm", R"({"target": "tiny@10"})"), HasSubstr("it is held by"));
  EXPECT_THAT(refusal("rm", kForce), HasSubstr("let root end that by --force"));
  EXPECT_THAT(refusal("prune", R"({"target": "tiny", "rules": {"last": 1}, "force": true})"),
              HasSubstr("only root"));
  EXPECT_FALSE(one->take<fb::HoldEndedT>().has_value());
  ask_root("rm", kForce);
  const auto ended = one->take<fb::HoldEndedT>();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->hold, last_hold);
  EXPECT_EQ(ended->reason, "user 0 removes the commit by force");
  EXPECT_THAT(listed(), ElementsAre(15, 5));
  EXPECT_THAT(hold(*one, 10), HasSubstr("deleted: removed by user 0"));

  ASSERT_EQ(hold(*one, 5), "");
  ask_root("prune", R"({"target": "tiny", "rules": {"last": 1}, "force": true})");
  EXPECT_TRUE(one->take<fb::HoldEndedT>().has_value());
  EXPECT_THAT(listed(), ElementsAre(15));
}

TEST_F(HoldsTest, OnlyRootForcesRemovalOfHeldRun) {
  for (auto& rank : job.ranks) rank->send(fb::LeaveGroupT());
  for (auto& rank : job.ranks) rank->die();
  world.run();
  const auto one = reader();
  ASSERT_EQ(hold(*one, 10), "");
  FakeTrainer owner(world, {.arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(owner.connect());
  const auto refused = owner.query("rm", R"({"target": "tiny", "force": true})");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.json, HasSubstr("tiny~1@10 is held by"));
  ask_root("rm", R"({"target": "tiny", "force": true})");
  EXPECT_TRUE(one->take<fb::HoldEndedT>().has_value());
  EXPECT_THAT(ask_root("runs", "{}"), IsEmpty());
}

TEST_F(HoldsTest, StalledReaderLosesItsHold) {
  const auto slow = reader();
  const auto stuck = reader();
  ASSERT_EQ(hold(*stuck, 5), "");
  ASSERT_EQ(hold(*slow, 10), "");
  advance(std::chrono::seconds(59));
  job.expect_restores(*slow, 10);  // progress
  EXPECT_FALSE(stuck->take<fb::HoldEndedT>().has_value());
  advance(std::chrono::seconds(2));
  const auto ended = stuck->take<fb::HoldEndedT>();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->reason, "its reader made no progress for 60 s");
  advance(std::chrono::seconds(50));
  fb::RenewHoldT renew;
  renew.hold = last_hold;
  slow->post(renew);
  advance(std::chrono::seconds(59));
  ask(job, "prune", kLast1);
  EXPECT_THAT(listed(), ElementsAre(15, 10));
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("\nckptd_holds_overdue_total 1\n"));
  advance(std::chrono::seconds(2));
  ask(job, "prune", kLast1);
  EXPECT_THAT(listed(), ElementsAre(15));
}

TEST_F(HoldsTest, HoldEndsWithSessionOrDaemon) {
  auto one = reader();
  ASSERT_EQ(hold(*one, 5), "");
  one->die();
  world.run();
  EXPECT_THAT(ask_root("status", "").at("holds"), IsEmpty());
  one = reader();
  ASSERT_EQ(hold(*one, 10), "");
  restart();  // no daemon knows what the last one had promised
  one = reader();
  ASSERT_EQ(hold(*one, 10), "");
  world.tick(std::chrono::seconds(31));  // past the time in which ranks may rejoin
  world.run();
  Json pruned = ask_root("prune", kLast1);
  EXPECT_EQ(pruned.at("kept").size(), 2u);
  job.expect_restores(*one, 10);
}

TEST_F(HoldsTest, HoldNeedsReadGrant) {
  const auto stranger = reader(kOther);
  EXPECT_THAT(hold(*stranger, 5), HasSubstr("no grant to read"));
  const auto one = reader();
  EXPECT_THAT(hold(*one, 6), HasSubstr("no commit"));
  fb::HoldCommitT latest;
  latest.run = "tiny";
  latest.latest = true;
  EXPECT_EQ(hold(*one, latest), "");
  EXPECT_EQ(last_step, 15u);
  fb::HoldCommitT between;
  between.run = "tiny";
  between.step = 12;
  between.newest = true;
  EXPECT_EQ(hold(*one, between), "");
  EXPECT_EQ(last_step, 12u) << "a view needs no commit of its own";
  ask(job, "prune", kLast1);
  EXPECT_THAT(listed(), ElementsAre(15));
  fb::OpenRestoreT newest = job.whole(12);
  newest.newest = true;
  job.expect_bytes(one->restore(newest), 10, 0);
  EXPECT_THAT(ask_root("status", "").at("holds").size(), 2u);
}

TEST_F(HoldsTest, CommitBeingRemovedCannotBeHeld) {
  const auto one = reader();
  // The prune's records are in flight to the journal when the hold is requested.
  fb::QueryT prune;
  prune.verb = "prune";
  prune.args = kLast1;
  job.ranks[0]->send(prune);
  fb::HoldCommitT body;
  body.run = "tiny";
  body.step = 5;
  const std::string error = hold(*one, body);
  EXPECT_THAT(error,
              ::testing::AnyOf(HasSubstr("are being removed; try again"), HasSubstr("no commit")));
  ASSERT_TRUE(job.ranks[0]->take<fb::QueryReplyT>()) << "of the prune";
  EXPECT_THAT(listed(), ElementsAre(15));
}

TEST_F(HoldsTest, VerifyHoldsItsView) {
  const auto one = reader();
  fb::QueryT verify;
  verify.verb = "verify";
  verify.args = R"({"target": "tiny@5"})";
  one->send(verify);  // begun, and not run yet
  fb::QueryT prune;
  prune.verb = "prune";
  prune.args = kLast1;
  job.ranks[0]->send(prune);
  world.run();
  const auto report = one->take<fb::QueryReplyT>();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(Json::parse(report->json).at("commits"), 1) << report->json;
  ASSERT_TRUE(job.ranks[0]->take<fb::QueryReplyT>()) << "of the prune";
  EXPECT_THAT(listed(), ElementsAre(15, 5));
  EXPECT_THAT(ask_root("status", "").at("holds"), IsEmpty()) << "it is through";
}

}  // namespace
}  // namespace ckptd::testing
