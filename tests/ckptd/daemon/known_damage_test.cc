// Damage found by scrub or verify is marked in log, show and unit for every commit that uses the
// damaged bytes, until a verify finds them intact or no commit uses them.
#include <string>
#include <vector>

#include "tests/ckptd/daemon/fragment_place.h"
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

class KnownDamageTest : public PruneTest {
 protected:
  static constexpr ckpt::UnitId kFrozen = 3;  // the same bytes at every step
  static constexpr ckpt::UnitId kTrained = 2;

  KnownDamageTest() : PruneTest({.segment_bytes = 2u << 20}) {
    job.start();
    for (auto& rank : job.ranks) {
      rank->byte_at = [](ckpt::UnitId unit, ckpt::Step step, uint64_t, uint64_t offset) {
        return state_byte(unit, unit == kFrozen ? 0 : step, 0, offset);
      };
    }
  }
  void flip(ckpt::Step step, ckpt::UnitId unit) {
    const auto [path, offset] = fragment_place(world, step, unit);
    world.disk().flip(path, offset + 7);
  }
  // Asks as root; any exit code will do.
  std::string ask_root_any(const std::string& verb, const std::string& args) {
    FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(root.connect());
    auto reply = root.query(verb, args);
    root.die();
    return reply.json;
  }
  Json verify(const std::string& target = "tiny", int exit_code = 4) {
    return ask(job, "verify", fmt::format(R"({{"target": "{}"}})", target), exit_code);
  }
  // The units that the log marks in the commit of this step.
  std::vector<std::string> marked_in_log(ckpt::Step step) {
    std::vector<std::string> units;
    const Json log = ask(job, "log", R"({"target": "tiny"})");
    for (const Json& commit : log) {
      if (commit.at("step") != step) continue;
      for (const Json& unit : commit.value("damage", Json::array())) {
        units.push_back(unit.at("unit"));
      }
      EXPECT_EQ(commit.at("damaged_units"), units.size()) << commit;
      EXPECT_EQ(commit.contains("remedy"), !units.empty()) << commit;
    }
    return units;
  }
  std::vector<std::string> marked_in_view(ckpt::Step step) {
    std::vector<std::string> units;
    const Json view = ask(job, "show", fmt::format(R"({{"target": "tiny@{}"}})", step));
    for (const Json& unit : view.at("units")) {
      if (unit.contains("damage")) units.push_back(unit.at("unit"));
    }
    EXPECT_EQ(view.at("damaged_units"), units.size()) << view;
    EXPECT_EQ(view.contains("remedy"), !units.empty()) << view;
    return units;
  }
  void expect_marked(ckpt::Step step, const std::vector<ckpt::UnitId>& units) {
    std::vector<std::string> names;
    for (const ckpt::UnitId unit : units) names.push_back(job.model[unit].name);
    EXPECT_EQ(marked_in_log(step), names) << "step " << step;
    EXPECT_EQ(marked_in_view(step), names) << "step " << step;
  }

  Job job{world, 2, {.arena_bytes = 4u << 20, .slab_bytes = 512u << 10}};
};

TEST_F(KnownDamageTest, VerifyMarksDamagedUnitInQueries) {
  job.commit(5);
  job.commit(10);
  flip(5, kTrained);
  expect_marked(5, {});
  verify();
  expect_marked(5, {kTrained});
  expect_marked(10, {});
  const Json versions =
      ask(job, "unit",
          fmt::format(R"({{"target": "tiny", "unit": "{}"}})", job.model[kTrained].name))
          .at("versions");
  ASSERT_EQ(versions.size(), 2u);
  EXPECT_FALSE(versions[0].contains("damage"));
  EXPECT_THAT(versions[1].at("damage").get<std::string>(), ::testing::HasSubstr("CRC32C"));
  const Json view = ask(job, "show", R"({"target": "tiny@5"})");
  EXPECT_THAT(view.at("remedy").get<std::string>(), ::testing::HasSubstr("ckptctl verify tiny@5"));
  EXPECT_EQ(ask(job, "status", "{}").at("conditions")[0].at("name"), "damaged_data");
}

TEST_F(KnownDamageTest, ViewShowsDamageOfOlderVersions) {
  job.commit(5);
  commit_units(job, 10, {0});
  flip(5, kTrained);
  verify();
  EXPECT_EQ(marked_in_view(10), std::vector<std::string>{job.model[kTrained].name});
  EXPECT_TRUE(marked_in_log(10).empty()) << "the commit of step 10 has no version of the unit";
}

TEST_F(KnownDamageTest, DamageMarksEverySharingCommit) {
  for (const ckpt::Step step : {5, 10, 15}) job.commit(step);
  flip(5, kFrozen);
  verify("tiny@5");
  for (const ckpt::Step step : {5, 10, 15}) expect_marked(step, {kFrozen});
  ask(job, "rm", R"({"target": "tiny@5"})");
  for (const ckpt::Step step : {10, 15}) expect_marked(step, {kFrozen});
}

// Health is not degraded for bytes that no commit has.
TEST_F(KnownDamageTest, DamageEndsWithItsCommit) {
  for (const ckpt::Step step : {5, 10, 15}) job.commit(step);
  for (const ckpt::Step step : {5, 10}) flip(step, kTrained);
  verify();
  const auto damaged = [&] { return ask_root("status", "{}").at("scrub").at("damaged_units"); };
  EXPECT_EQ(damaged(), 2);
  ask(job, "rm", R"({"target": "tiny@10"})");
  EXPECT_EQ(damaged(), 1);
  ask(job, "prune", kLast1);
  EXPECT_EQ(damaged(), 0);
  EXPECT_EQ(world.daemon().health_answer().text, "ok\n");
}

TEST_F(KnownDamageTest, DamageOfUnitKeptForOtherViewStays) {
  job.commit(5);
  commit_units(job, 10, {0});
  flip(5, kTrained);
  verify();
  ask(job, "rm", R"({"target": "tiny@5", "force": true})");
  EXPECT_EQ(marked_in_view(10), std::vector<std::string>{job.model[kTrained].name});
  EXPECT_EQ(ask_root("status", "{}").at("scrub").at("damaged_units"), 1);
}

TEST_F(KnownDamageTest, SharedDamageMovesToRemainingCommit) {
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  flip(5, kFrozen);
  verify("tiny@5");
  ask(job, "rm", R"({"target": "tiny@5"})");
  const Json errors = Json::parse(ask_root_any("scrub", "{}")).at("errors");
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].at("step"), 10);
}

TEST_F(KnownDamageTest, SharedDamageIsListedOncePerRemainingCommit) {
  for (const ckpt::Step step : {5, 10, 15}) job.commit(step);
  flip(5, kFrozen);
  verify();
  ask(job, "rm", R"({"target": "tiny@5"})");
  const Json errors = Json::parse(ask_root_any("scrub", "{}")).at("errors");
  std::set<int> steps;
  for (const Json& error : errors) steps.insert(error.at("step").get<int>());
  EXPECT_EQ(steps.size(), errors.size()) << errors;
  EXPECT_EQ(steps, (std::set<int>{10, 15})) << errors;
}

TEST_F(KnownDamageTest, DamageEndsWithItsRun) {
  job.commit(5);
  flip(5, kTrained);
  verify();
  for (auto& rank : job.ranks) rank->die();
  world.run();
  ask_root("rm", R"({"target": "tiny"})");
  EXPECT_THAT(ask_root("scrub", "{}").at("errors"), ::testing::IsEmpty());
  EXPECT_EQ(world.daemon().health_answer().text, "ok\n");
}

TEST_F(KnownDamageTest, DamageInSharingCommitMarksWriter) {
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  flip(5, kFrozen);
  verify("tiny@10");
  for (const ckpt::Step step : {5, 10}) expect_marked(step, {kFrozen});
}

TEST_F(KnownDamageTest, NewRunOfSameNameIsNotMarked) {
  job.commit(5);
  flip(5, kTrained);
  verify();
  expect_marked(5, {kTrained});
  for (auto& rank : job.ranks) rank->die();
  world.run();
  ask_root("rm", R"({"target": "tiny"})");
  job.start();
  job.commit(5);
  expect_marked(5, {});
}

TEST_F(KnownDamageTest, MarksSurviveRestartUntilCleanVerify) {
  job.commit(5);
  job.commit(10);
  flip(5, kTrained);
  verify();
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  world.run();
  const auto marked = [&] {
    return ask_root("show", R"({"target": "tiny@5"})").at("damaged_units").get<uint64_t>();
  };
  EXPECT_EQ(marked(), 1u);
  flip(5, kTrained);  // repairs the damage
  world.tick(std::chrono::seconds(1));
  ask_root("verify", R"({"target": "tiny@10"})");
  EXPECT_EQ(marked(), 1u) << "nobody has read step 5";
  ask_root("verify", R"({"target": "tiny"})");
  EXPECT_EQ(marked(), 0u);
}

}  // namespace
}  // namespace ckptd::testing
