// Durable records are applied a few per turn of the loop: what other sessions see in between, and
// which requests wait. The daemon of these tests applies one record per turn.
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ApplyTurns : public PruneTest {
 protected:
  static constexpr ckpt::Step kCommits = 20;

  ApplyTurns() : job_(world, 1), root_(world, kControl) {
    job_.start();
    job_.commit(1);
    for (ckpt::Step step = 2; step <= kCommits; ++step) {
      commit_units(job_, step, {static_cast<ckpt::UnitId>(step % 3)});
    }
    EXPECT_TRUE(root_.connect());
  }

  // Queries of the catalog are answered at once, without a turn of the loop.
  Json ask_now(const std::string& verb, const std::string& target) {
    fb::QueryT question;
    question.verb = verb;
    question.args = Json{{"target", target}}.dump();
    root_.send(std::move(question));
    const auto reply = root_.take<fb::QueryReplyT>();
    EXPECT_TRUE(reply.has_value()) << "not answered between two turns";
    return reply ? Json::parse(reply->json) : Json();
  }
  std::vector<ckpt::Step> log_now() {
    std::vector<ckpt::Step> steps;
    for (const auto& one : ask_now("log", "tiny")) steps.push_back(one.at("step"));
    return steps;
  }
  void send_prune(FakeTrainer& by) {
    fb::QueryT question;
    question.verb = "prune";
    question.args = kLast1;
    by.send(std::move(question));
  }
  // The prune is durable, and part of it is applied.
  void prune_half() {
    send_prune(*job_.ranks[0]);
    while (log_now().size() > kCommits / 2) ASSERT_GT(world.daemon().poll(), 0u);
    ASSERT_EQ(log_now().size(), kCommits / 2);
  }

  static inline const FakeTrainer::Options kControl = {
      .uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control};
  Job job_;
  FakeTrainer root_;
};

TEST_F(ApplyTurns, QueriesAreAnsweredWhilePruneApplies) {
  std::map<ckpt::Step, Json> shown;
  for (ckpt::Step step = 1; step <= kCommits; ++step) {
    shown[step] = ask_now("show", fmt::format("tiny@{}", step));
  }
  send_prune(*job_.ranks[0]);
  std::set<size_t> lengths;
  std::optional<fb::QueryReplyT> pruned;
  while (!pruned) {
    const auto listed = log_now();
    lengths.insert(listed.size());
    for (const ckpt::Step step : listed) {
      ASSERT_EQ(ask_now("show", fmt::format("tiny@{}", step)), shown[step])
          << "what is listed is whole";
    }
    ASSERT_GT(world.daemon().poll(), 0u);
    pruned = job_.ranks[0]->take<fb::QueryReplyT>();
    EXPECT_EQ(pruned.has_value(), log_now().size() == 1) << "answered when all of it is true";
  }
  EXPECT_EQ(lengths.size(), kCommits - 1) << "every state in between was seen";
  EXPECT_EQ(Json::parse(pruned->json).at("removed").size(), kCommits - 1);
}

TEST_F(ApplyTurns, CommitIsReportedAfterEarlierPruneApplies) {
  job_.begin(kCommits + 1);
  job_.fill(kCommits + 1);
  prune_half();
  FakeTrainer& rank = *job_.ranks[0];
  while (!rank.take<fb::QueryReplyT>()) {
    rank.listen();
    ASSERT_LT(rank.snapshot(kCommits + 1).level, fb::SnapshotLevel::Durable);
    ASSERT_GT(log_now().size(), 1u);
    ASSERT_GT(world.daemon().poll(), 0u);
  }
  world.run();
  rank.listen();
  EXPECT_EQ(rank.snapshot(kCommits + 1).level, fb::SnapshotLevel::Durable);
  EXPECT_THAT(log_now(), ElementsAre(kCommits + 1, kCommits));
  expect_verified();
}

// Each change of history sees the results of the change before it.
TEST_F(ApplyTurns, TagWaitsForPruneToApply) {
  prune_half();
  fb::QueryT tag;
  tag.verb = "tag";
  tag.args = R"({"target": "tiny@1", "tag": "gone"})";
  root_.send(std::move(tag));
  EXPECT_FALSE(root_.take<fb::QueryReplyT>().has_value());
  world.run();
  const auto refused = root_.take<fb::QueryReplyT>();
  ASSERT_TRUE(refused.has_value());
  EXPECT_NE(refused->exit_code, 0);
  EXPECT_THAT(refused->json, HasSubstr("tiny~1@1: deleted"));
}

TEST_F(ApplyTurns, ResumeNeverUsesCommitBeingPruned) {
  FakeTrainer heir(world, {});
  ASSERT_TRUE(heir.connect());
  ASSERT_TRUE(heir.register_units(job_.model));
  send_prune(root_);
  while (world.daemon().poll() > 0) {
    fb::QueryT question;
    question.verb = "log";
    question.args = R"({"target": "tiny"})";
    heir.send(std::move(question));
    if (Json::parse(heir.take<fb::QueryReplyT>()->json).size() == kCommits / 2) break;
  }
  job_.ranks[0]->die();
  heir.join(0, 1, fb::ResumeMode::AtStep, 1);
  world.run();
  EXPECT_FALSE(heir.started());
  EXPECT_THAT(heir.error(), HasSubstr("deleted"));
  heir.join(0, 1, fb::ResumeMode::Latest);
  world.run();
  ASSERT_TRUE(heir.started()) << heir.error();
  EXPECT_EQ(heir.epoch().resume_step, kCommits);
}

TEST_F(ApplyTurns, PruneCompletesAfterKill) {
  prune_half();
  const uint64_t left = kCommits / 2;
  restart();
  FakeTrainer reader(world, kControl);
  ASSERT_TRUE(reader.connect());
  EXPECT_THAT(job_.log(reader), ElementsAre(kCommits)) << left << " were listed";
  expect_verified();
  job_.start(fb::ResumeMode::Latest);
  expect_view(job_, kCommits, {18, 19, 20, 1});
}

TEST_F(ApplyTurns, DrainWaitsForPruneToApply) {
  prune_half();
  world.daemon().begin_drain();
  EXPECT_FALSE(world.daemon().drained());
  while (job_.ranks[0]->take<fb::QueryReplyT>() == std::nullopt) {
    EXPECT_FALSE(world.daemon().drained());
    ASSERT_GT(world.daemon().poll(), 0u);
  }
  world.stop();
  ASSERT_TRUE(world.start().ok());
  FakeTrainer reader(world, kControl);
  ASSERT_TRUE(reader.connect());
  EXPECT_THAT(job_.log(reader), ElementsAre(kCommits));
}

}  // namespace
}  // namespace ckptd::testing
