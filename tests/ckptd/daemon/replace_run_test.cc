// A run that has no commit is replaced when its owner registers other units under its name, under
// the conditions of `rm`. A run with commits never is.
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kTinyTarget[] = R"({"target": "tiny"})";

class ReplaceRunTest : public PruneTest {
 protected:
  // A first start that fails: the units are registered, the epoch opens, nothing is committed.
  void start_and_die(const FakeTrainer::Options& options = {}) {
    Job job(world, 2, options);
    job.start();
    for (auto& rank : job.ranks) rank->die();
    world.run();
  }
  std::vector<ckpt::UnitSpec> other_shape() const {
    std::vector<ckpt::UnitSpec> units = small_model();
    units[0].bytes += 512;
    return units;
  }
  static void register_with(FakeTrainer& trainer, const std::string& metadata) {
    fb::RegisterUnitsT body;
    body.metadata = metadata;
    const auto units = small_model();
    for (ckpt::UnitId id = 0; id < units.size(); ++id) {
      body.units.push_back(std::make_unique<fb::UnitT>(ckpt::wire::to_fb(units[id], id)));
    }
    trainer.send(std::move(body));
  }
  Json removed_runs() { return ask_root("runs", R"({"removed": true})"); }
  std::string registered_bytes() {
    return ask_root("schema", kTinyTarget).at("units").at(0).at("bytes").dump();
  }
};

TEST_F(ReplaceRunTest, OtherUnitsReplaceRunWithoutCommits) {
  start_and_die();
  FakeTrainer next(world, {});
  ASSERT_TRUE(next.connect());
  ASSERT_TRUE(next.register_units(other_shape())) << next.error();
  FakeTrainer second(world, {});
  ASSERT_TRUE(second.connect());
  ASSERT_TRUE(second.register_units(other_shape())) << "a rank of the same job";
  EXPECT_EQ(registered_bytes(), std::to_string(other_shape()[0].bytes));
  ASSERT_EQ(removed_runs().size(), 1u);
  EXPECT_THAT(removed_runs().at(0).at("reason").get<std::string>(), HasSubstr("replaced"));
  next.join(0, 2, fb::ResumeMode::Start);
  second.join(1, 2, fb::ResumeMode::Start);
  world.run();
  ASSERT_TRUE(next.started()) << next.error();
  EXPECT_EQ(next.epoch().lineage, 1u) << "a run of its own number begins anew";
  restart();
  EXPECT_EQ(ask_root("runs", "{}").size(), 1u);
  EXPECT_EQ(registered_bytes(), std::to_string(other_shape()[0].bytes));
}

TEST_F(ReplaceRunTest, RunWithCommitIsNotReplaced) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  job.ranks[0]->die();
  world.run();
  FakeTrainer next(world, {});
  ASSERT_TRUE(next.connect());
  EXPECT_FALSE(next.register_units(other_shape()));
  const auto reply = next.take<fb::ErrorReplyT>();
  ASSERT_TRUE(reply);
  EXPECT_THAT(reply->message, HasSubstr("bytes instead of"));
  EXPECT_EQ(reply->detail, static_cast<int>(ckpt::ErrorDetail::kUnitsDiffer));
  EXPECT_THAT(removed_runs(), IsEmpty());
}

TEST_F(ReplaceRunTest, TrainedRunIsNotReplaced) {
  Job job(world, 2);
  job.start();
  FakeTrainer next(world, {});
  ASSERT_TRUE(next.connect());
  EXPECT_FALSE(next.register_units(other_shape()));
  const auto reply = next.take<fb::ErrorReplyT>();
  ASSERT_TRUE(reply);
  EXPECT_THAT(reply->message, HasSubstr("without a commit it would be replaced, but run tiny: it "
                                        "is in use: session"));
  EXPECT_EQ(reply->detail, static_cast<int>(ckpt::ErrorDetail::kRunInUse));
  for (auto& rank : job.ranks) rank->die();
  world.run();
  EXPECT_TRUE(next.register_units(other_shape())) << "now it may: " << next.error();
}

TEST_F(ReplaceRunTest, AnotherUserReplacesNothing) {
  start_and_die();
  for (const uint32_t uid : {0u, 77u}) {
    FakeTrainer other(world, {.uid = uid});
    ASSERT_TRUE(other.connect());
    EXPECT_FALSE(other.register_units(other_shape())) << uid;
    EXPECT_THAT(other.error(), HasSubstr(uid == 0 ? "bytes instead of" : "no grant"));
    other.die();
    world.run();
  }
  EXPECT_THAT(removed_runs(), IsEmpty());
}

TEST_F(ReplaceRunTest, OtherMetadataReplacesRunWithoutCommits) {
  for (const char* metadata : {R"({"lr": 1})", R"({"lr": 1})", R"({"lr": 2})"}) {
    FakeTrainer trainer(world, {});
    ASSERT_TRUE(trainer.connect());
    register_with(trainer, metadata);
    world.run();
    ASSERT_TRUE(trainer.take<fb::DoneT>()) << trainer.error();
    EXPECT_EQ(ask_root("schema", kTinyTarget).at("metadata"), Json::parse(metadata));
    trainer.die();
    world.run();
  }
  EXPECT_EQ(removed_runs().size(), 1u) << "the same configuration replaces nothing";
}

TEST_F(ReplaceRunTest, ReplacementKeepsRulesAndGrants) {
  start_and_die();
  ask_root("keep", R"({"target": "tiny", "rules": {"last": 3}})");
  ask_root("grant", R"({"target": "tiny", "user": 77, "rights": ["read"]})");
  const Json rules = ask_root("keep", kTinyTarget);
  const Json grants = ask_root("grant", kTinyTarget);
  FakeTrainer next(world, {});
  ASSERT_TRUE(next.connect());
  ASSERT_TRUE(next.register_units(other_shape())) << next.error();
  EXPECT_EQ(removed_runs().size(), 1u);
  EXPECT_EQ(ask_root("keep", kTinyTarget), rules);
  EXPECT_EQ(ask_root("grant", kTinyTarget), grants);
}

}  // namespace
}  // namespace ckptd::testing
