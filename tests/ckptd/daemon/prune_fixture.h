// Fixture of the tests of prune and gc.
#pragma once

#include <gmock/gmock.h>

#include "ckptd/io/store_paths.h"
#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {

using Json = nlohmann::json;

class PruneTest : public ::testing::Test {
 protected:
  explicit PruneTest(const World::Options& options = {}) : world(options) {
    EXPECT_TRUE(world.start().ok());
  }
  Json ask(Job& job, const std::string& verb, const std::string& args, int exit_code = 0) {
    const auto reply = job.ranks[0]->query(verb, args);
    EXPECT_EQ(reply.exit_code, exit_code) << verb << " " << args << ": " << reply.json;
    return Json::parse(reply.json);
  }
  // Asks as root, which needs no session of the run.
  Json ask_root(const std::string& verb, const std::string& args) {
    FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(root.connect());
    const auto reply = root.query(verb, args);
    EXPECT_EQ(reply.exit_code, 0) << reply.json;
    root.die();
    return Json::parse(reply.json);
  }
  // Commits a snapshot of these units only.
  void commit_units(Job& job, ckpt::Step step, const std::vector<ckpt::UnitId>& units) {
    for (auto& rank : job.ranks) rank->begin(step, job.plan(units));
    world.run();
    job.fill(step);
    world.run();
    job.listen();
    ASSERT_EQ(job.ranks[0]->snapshot(step).level, fb::SnapshotLevel::Durable);
  }
  // The view at the step has these versions, one for each unit, bit for bit.
  void expect_view(Job& job, ckpt::Step step, const std::vector<ckpt::Step>& versions) {
    const auto restored = job.restore_exact(step);
    ASSERT_EQ(restored.error, "");
    for (ckpt::UnitId unit = 0; unit < job.model.size(); ++unit) {
      ASSERT_EQ(restored.steps[unit], versions[unit]) << "unit " << unit;
      for (uint64_t i = 0; i < job.model[unit].bytes; ++i) {
        ASSERT_EQ(restored.bytes[unit][i], state_byte(unit, versions[unit], 0, i)) << "byte " << i;
      }
    }
  }
  // Every commit that is left is intact.
  void expect_verified() {
    const Json report = ask_root("verify", "{}");
    EXPECT_THAT(report.at("errors"), ::testing::IsEmpty()) << report;
  }
  // Restarts the daemon. The memory level is empty afterwards: restores read the disk.
  void restart() {
    world.kill_daemon();
    ASSERT_TRUE(world.start().ok());
    world.run();
  }
  uint64_t used() {
    const auto space = world.disk().space().value();
    return space.total_bytes - space.free_bytes;
  }
  size_t segment_files() { return world.disk().list(kSegmentsDirectory).value().size(); }

  World world;
};

inline constexpr char kLast1[] = R"({"target": "tiny", "rules": {"last": 1}})";
inline constexpr char kLast2[] = R"({"target": "tiny", "rules": {"last": 2}})";

}  // namespace ckptd::testing
