// A run belongs to its creator. Other users have the rights that were granted, and no others.
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uid_t kOwner = 54'321;
constexpr uid_t kOther = 4242;
constexpr char kTiny[] = R"({"target": "tiny"})";

class GrantsTest : public PruneTest {
 protected:
  GrantsTest() { job.start(); }

  fb::QueryReplyT ask_as(uid_t uid, const std::string& verb, const std::string& args) {
    FakeTrainer user(world, {.uid = uid, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(user.connect());
    auto reply = user.query(verb, args);
    user.die();
    world.run();
    return reply;
  }
  Json grant(const std::string& rights, uid_t uid = kOther) {
    const auto reply =
        ask_as(kOwner, "grant",
               fmt::format(R"({{"target": "tiny", "user": {}, "rights": [{}]}})", uid, rights));
    EXPECT_EQ(reply.exit_code, 0) << reply.json;
    return Json::parse(reply.json);
  }
  // The error; empty if the query is allowed.
  std::string refusal(uid_t uid, const std::string& verb, const std::string& args) {
    const auto reply = ask_as(uid, verb, args);
    return reply.exit_code == 0 ? "" : Json::parse(reply.json).value("error", "?");
  }
  void expect_may(const std::string& verb, const std::string& args, bool may) {
    const std::string refused = refusal(kOther, verb, args);
    if (may) {
      EXPECT_EQ(refused, "") << verb;
    } else {
      EXPECT_THAT(refused, HasSubstr("run tiny: it belongs to user 54321, and user 4242 has no "
                                     "grant to prune"))
          << verb;
    }
  }

  Job job{world, 1};
};

TEST_F(GrantsTest, AReaderReadsAndChangesNothing) {
  job.commit(5);
  const Json granted = grant(R"("read")");
  EXPECT_EQ(granted, Json::parse(R"({"run": "tiny", "owner": 54321,
                                     "grants": [{"user": 4242, "rights": ["read"]}]})"));
  EXPECT_EQ(Json::parse(ask_as(kOther, "grant", kTiny).json), granted);
  EXPECT_EQ(Json::parse(ask_as(kOther, "runs", "{}").json).size(), 1u);
  EXPECT_EQ(Json::parse(ask_as(kOther, "log", kTiny).json).size(), 1u);

  FakeTrainer reader(world, {.uid = kOther});
  ASSERT_TRUE(reader.connect());
  ASSERT_TRUE(reader.register_units(small_model())) << reader.error();
  job.expect_restores(reader, 5);
  reader.join(0, 1, fb::ResumeMode::Latest);
  world.run();
  EXPECT_FALSE(reader.started());
  EXPECT_THAT(reader.error(), HasSubstr("user 4242 has no grant to commit; its owner gives one "
                                        "with `ckptctl grant tiny 4242 read commit`"));
  EXPECT_FALSE(job.ranks[0]->epoch_ended()) << "the owner's group goes on";

  expect_may("keep", kTiny, true);  // reads only
  expect_may("keep", R"({"target": "tiny", "rules": {"last": 1}})", false);
  expect_may("tag", R"({"target": "tiny@5", "tag": "mine"})", false);
  EXPECT_THAT(refusal(kOther, "tag", R"({"target": "tiny@5", "tag": "mine"})"),
              HasSubstr("no grant to prune or to commit; its owner gives one with `ckptctl grant "
                        "tiny 4242 read prune`"));
  expect_may("pin", R"({"target": "tiny@5"})", false);
  expect_may("prune", kLast1, false);
  expect_may("rm", R"({"target": "tiny@5"})", false);
  EXPECT_THAT(refusal(kOther, "rm", kTiny), HasSubstr("only user 54321, its owner"));
  EXPECT_THAT(refusal(kOther, "grant", R"({"target": "tiny", "user": 4242, "rights": ["prune"]})"),
              HasSubstr("only user 54321, its owner"));
  job.commit(10);
}

// Codecs that a reader registers have no effect, and its session does not block the removal of the
// run.
TEST_F(GrantsTest, ReaderAffectsNeitherCodecsNorRemoval) {
  const auto encoded = [&] {
    const std::string text = world.daemon().metrics_text();
    const std::string name = R"(ckptd_fragment_bytes_total{codec="zstd"} )";
    const size_t at = text.find(name);
    return at == std::string::npos ? 0 : std::stoul(text.substr(at + name.size()));
  };
  job.ranks[0]->byte_at = [](auto, ckpt::Step step, auto, auto) {
    return static_cast<std::byte>(step);
  };
  grant(R"("read")");
  FakeTrainer reader(world, {.uid = kOther});
  ASSERT_TRUE(reader.connect());
  const auto model = small_model();
  ASSERT_TRUE(
      reader.register_units(model, std::vector<fb::UnitCodec>(model.size(), fb::UnitCodec::Zstd)));
  job.commit(10);
  EXPECT_EQ(encoded(), 0u);
  ASSERT_TRUE(job.ranks[0]->register_units(
      model, std::vector<fb::UnitCodec>(model.size(), fb::UnitCodec::Zstd)));
  job.commit(15);
  EXPECT_GT(encoded(), 0u) << "it would have been seen";

  job.ranks[0]->send(fb::LeaveGroupT());
  job.ranks[0]->die();
  world.run();
  EXPECT_EQ(refusal(kOwner, "rm", kTiny), "");
  EXPECT_TRUE(reader.register_units({model[0]})) << "the name is free for a run of its own";
}

// Users without a grant learn nothing of the run, not even from queries that name no run.
TEST_F(GrantsTest, StrangersLearnNothing) {
  job.commit(5);
  const auto seen = [&](uid_t uid) {
    const Json status = Json::parse(ask_as(uid, "status", "{}").json);
    const Json verified = Json::parse(ask_as(uid, "verify", "{}").json);
    size_t of_run = 0;
    for (const Json& session : status.at("sessions")) {
      if (session.at("kind") == "trainer") ++of_run;
    }
    return std::tuple(status.at("runs").get<int>(), of_run, verified.at("commits").get<int>());
  };
  EXPECT_EQ(seen(kOwner), std::tuple(1, 1u, 1));
  EXPECT_EQ(seen(0), std::tuple(1, 1u, 1));
  EXPECT_EQ(seen(kOther), std::tuple(0, 0u, 0));
  grant(R"("read")");
  EXPECT_EQ(seen(kOther), std::tuple(1, 1u, 1));
}

TEST_F(GrantsTest, ACommitterTrainsTheRun) {
  job.commit(5);
  grant(R"("commit")");
  job.ranks[0]->die();
  world.run();
  Job theirs(world, 1, {.uid = kOther});
  theirs.start(fb::ResumeMode::Latest);
  EXPECT_EQ(theirs.ranks[0]->epoch().resume_step, 5u);
  theirs.expect_restores(*theirs.ranks[0], 5);
  theirs.commit(10);
  expect_may("tag", R"({"target": "tiny@10", "tag": "mine"})", true);
  expect_may("prune", kLast1, false);

  // A session keeps its rights after a revocation. A new session does not get them.
  grant("");
  theirs.commit(15);
  theirs.ranks[0]->die();
  world.run();
  FakeTrainer again(world, {.uid = kOther});
  ASSERT_TRUE(again.connect());
  EXPECT_FALSE(again.register_units(small_model()));
  EXPECT_THAT(again.error(), HasSubstr("user 4242 has no grant to read"));
}

TEST_F(GrantsTest, PrunerMayPruneButNotCommit) {
  for (const ckpt::Step step : {5, 10, 15, 20}) job.commit(step);
  grant(R"("prune")");
  expect_may("keep", R"({"target": "tiny", "rules": {"last": 2}})", true);
  expect_may("pin", R"({"target": "tiny@5"})", true);
  expect_may("prune", kTiny, true);
  EXPECT_EQ(Json::parse(ask_as(kOther, "log", kTiny).json).size(), 3u);
  expect_may("pin", R"({"target": "tiny@5", "remove": true})", true);
  expect_may("rm", R"({"target": "tiny@5"})", true);
  EXPECT_EQ(ask_root("log", kTiny).size(), 2u);
  EXPECT_THAT(refusal(kOther, "rm", kTiny), HasSubstr("only user 54321, its owner"));
  FakeTrainer trainer(world, {.uid = kOther});
  ASSERT_TRUE(trainer.connect());
  ASSERT_TRUE(trainer.register_units(small_model()));
  trainer.join(0, 1, fb::ResumeMode::Latest);
  world.run();
  EXPECT_THAT(trainer.error(), HasSubstr("user 4242 has no grant to commit"));
}

TEST(Grants, TellThatTheirUserMayNotConnect) {
  World world({.may_connect = [](uid_t uid) { return uid != kOther; }});
  ASSERT_TRUE(world.start().ok());
  Job job(world, 1);
  job.start();
  FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  for (const uid_t uid : {kOther, uid_t{7}}) {
    const auto reply = root.query(
        "grant", fmt::format(R"({{"target": "tiny", "user": {}, "rights": ["read"]}})", uid));
    ASSERT_EQ(reply.exit_code, 0) << reply.json;
  }
  const Json grants = Json::parse(root.query("grant", kTiny).json).at("grants");
  EXPECT_EQ(grants.at(0), Json::parse(R"({"user": 7, "rights": ["read"]})"));
  EXPECT_EQ(grants.at(1),
            Json::parse(R"({"user": 4242, "rights": ["read"], "may_connect": false})"));
}

TEST_F(GrantsTest, SurviveDaemonAndCatalogLoss) {
  job.commit(5);
  grant(R"("commit", "prune")");
  grant(R"("read")", 7);
  grant(R"("read")", 8);
  const Json before = grant("", 8);
  EXPECT_EQ(before.at("grants").size(), 2u);
  restart();
  EXPECT_EQ(ask_root("grant", kTiny), before);
  ask_root("rebuild", "");
  EXPECT_EQ(ask_root("grant", kTiny), before);
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  world.run();
  EXPECT_EQ(ask_root("grant", kTiny), before);
}

// A member that rejoins after a restart needs the grant again. Membership in the epoch is no right.
TEST_F(GrantsTest, RejoinNeedsCurrentGrant) {
  job.ranks[0]->die();
  world.run();
  grant(R"("commit")");
  Job theirs(world, 1, {.uid = kOther});
  theirs.start();
  theirs.commit(5);
  grant(R"("read")");
  restart();
  EXPECT_FALSE(theirs.ranks[0]->reconnect());
  EXPECT_THAT(theirs.ranks[0]->error(), HasSubstr("user 4242 has no grant to commit"));
}

// A member that asks to join has left its epoch even if refused, so the other rank does not wait.
TEST_F(GrantsTest, RefusedJoinEndsEpochForOtherRanks) {
  job.ranks[0]->die();
  world.run();
  grant(R"("commit")");
  Job theirs(world, 2, {.uid = kOther});
  theirs.start();
  grant(R"("read")");
  EXPECT_FALSE(theirs.ranks[0]->epoch_ended());
  theirs.ranks[1]->join(1, 2, fb::ResumeMode::Continue);
  world.run();
  EXPECT_FALSE(theirs.ranks[1]->started());
  EXPECT_THAT(theirs.ranks[1]->error(), HasSubstr("user 4242 has no grant to commit"));
  theirs.ranks[0]->listen();
  EXPECT_TRUE(theirs.ranks[0]->epoch_ended());
}

TEST_F(GrantsTest, AreRemovedWithTheirRun) {
  grant(R"("prune")");
  job.ranks[0]->send(fb::LeaveGroupT());
  job.ranks[0]->die();
  world.run();
  ASSERT_EQ(ask_as(kOwner, "rm", kTiny).exit_code, 0);
  EXPECT_THAT(Json::parse(ask_as(kOther, "runs", R"({"removed": true})").json), IsEmpty());
  Job another(world, 1);
  another.start();
  EXPECT_THAT(ask_root("grant", kTiny).at("grants"), IsEmpty());
  restart();
  EXPECT_THAT(ask_root("grant", kTiny).at("grants"), IsEmpty());
  EXPECT_EQ(ask_as(kOther, "log", kTiny).exit_code, 3) << "as if there were no such run";
}

TEST_F(GrantsTest, InvalidArgumentsAreRefused) {
  const auto wrong = [&](const std::string& rest) {
    return refusal(kOwner, "grant", R"({"target": "tiny", )" + rest + "}");
  };
  EXPECT_THAT(wrong(R"("user": 4242, "rights": ["write"])"), HasSubstr("right write: read, "));
  EXPECT_THAT(wrong(R"("user": 4242, "rights": "read")"), HasSubstr("rights must be a list"));
  EXPECT_THAT(wrong(R"("user": 4242, "rights": [7])"), HasSubstr("rights must be a list"));
  EXPECT_THAT(wrong(R"("user": 4242, "rights": {"read": "read"})"), HasSubstr("must be a list"));
  EXPECT_THAT(wrong(R"("user": -1, "rights": ["read"])"), HasSubstr("user must be a number"));
  EXPECT_THAT(wrong(R"("user": 4294967295, "rights": ["read"])"), HasSubstr("no user id"));
  EXPECT_THAT(wrong(R"("user": 54321, "rights": ["read"])"), HasSubstr("belongs to user 54321"));
  EXPECT_THAT(wrong(R"("user": 4242, "rights": [])"), HasSubstr("user 4242 has no grant"));
  EXPECT_THAT(wrong(R"("rights": ["read"])"), HasSubstr("to which user?"));
  EXPECT_THAT(wrong(R"("who": 1)"), HasSubstr("unknown argument who"));
  EXPECT_EQ(ask_as(kOther, "grant", kTiny).exit_code, 3) << "it is not even there";
}

}  // namespace
}  // namespace ckptd::testing
