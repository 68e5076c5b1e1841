// Alarms: from a trainer's bytes to the client, the history and the metrics.
#include <gmock/gmock.h>

#include <cstring>

#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Every unit is filled with one float that is made of step, unit and salt.
std::byte float_byte(ckpt::UnitId unit, ckpt::Step step, uint64_t salt, uint64_t offset) {
  const float value = static_cast<float>(step * 16 + unit) + static_cast<float>(salt) / 16;
  std::array<std::byte, sizeof value> bytes;
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes[offset % sizeof value];
}

class AlarmsTest : public ::testing::Test {
 protected:
  void start(fb::AlarmPolicy configured, fb::AlarmPolicy session = fb::AlarmPolicy::Default) {
    world = std::make_unique<World>(World::Options{.alarms = configured});
    ASSERT_TRUE(world->start().ok());
    job = std::make_unique<Job>(*world, 2, FakeTrainer::Options{.alarms = session});
    for (ckpt::UnitSpec& unit : job->model) {
      unit.tensors = {{"w." + unit.name, ckpt::DType::kF32, {unit.bytes / 4}, 0}};
    }
    job->start();
    for (auto& rank : job->ranks) rank->byte_at = float_byte;
  }
  // Makes one float of the unit NaN, in rank 1's half.
  void write_nan(ckpt::UnitId unit) {
    const uint64_t at = job->model[unit].bytes / 4 * 3 / 4 * 4;
    for (auto& rank : job->ranks) {
      rank->byte_at = [unit, at](ckpt::UnitId which, ckpt::Step step, uint64_t salt,
                                 uint64_t offset) {
        const bool here = which == unit && offset >= at && offset < at + 4;
        return here ? std::byte{0xff} : float_byte(which, step, salt, offset);
      };
    }
  }
  void save(ckpt::Step step, const std::vector<ckpt::UnitId>& units) {
    for (auto& rank : job->ranks) rank->begin(step, job->plan(units));
    world->run();
    job->fill(step);
    world->run();
    job->listen();
  }
  FakeTrainer::Snapshot& snapshot(ckpt::Step step) { return job->ranks[0]->snapshot(step); }
  void expect_good(ckpt::Step step) {
    EXPECT_EQ(snapshot(step).level, fb::SnapshotLevel::Durable) << snapshot(step).reason;
    EXPECT_EQ(snapshot(step).alarms, "");
  }
  nlohmann::json ask(const std::string& verb) {
    const auto reply = job->ranks[0]->query(verb, R"({"target": "tiny"})");
    EXPECT_EQ(reply.exit_code, 0) << reply.json;
    return nlohmann::json::parse(reply.json);
  }
  void expect_metric(const std::string& kind, int count) {
    EXPECT_THAT(world->daemon().metrics_text(),
                HasSubstr(fmt::format("\nckptd_alarms_total{{kind=\"{}\"}} {}\n", kind, count)));
  }
  std::unique_ptr<World> world;
  std::unique_ptr<Job> job;
};

TEST_F(AlarmsTest, NaNIsReportedAndSnapshotCommits) {
  start(fb::AlarmPolicy::Warn);
  save(5, job->all_units());
  expect_good(5);
  write_nan(2);
  save(6, job->all_units());
  EXPECT_EQ(snapshot(6).level, fb::SnapshotLevel::Durable);
  EXPECT_EQ(snapshot(6).alarms,
            "unit layers.0.experts.1.weights: 1 of its floats is NaN or infinite");
  EXPECT_EQ(job->ranks[1]->snapshot(6).alarms, snapshot(6).alarms);
  EXPECT_EQ(ask("log").at(0).at("alarms"), 1);
  EXPECT_EQ(ask("log").at(1).at("alarms"), 0);
  EXPECT_EQ(ask("alarms").at(0).at("unit"), "layers.0.experts.1.weights");
  EXPECT_EQ(ask("alarms").at(0).at("floats"), 1);
  expect_metric("not_finite", 1);
  expect_metric("unchanged", 0);
}

// The previous snapshot is checked already, but is neither in the journal nor in the catalog.
TEST_F(AlarmsTest, PipelinedSnapshotsReportUnchangedUnit) {
  start(fb::AlarmPolicy::Warn);
  for (auto& rank : job->ranks) {
    rank->byte_at = [](ckpt::UnitId unit, ckpt::Step step, uint64_t salt, uint64_t offset) {
      return float_byte(unit, unit == 1 ? 5 : step, salt, offset);
    };
  }
  for (const ckpt::Step step : {5, 6, 7}) {
    for (auto& rank : job->ranks) rank->begin(step, job->plan(job->all_units()));
  }
  world->run();
  for (const ckpt::Step step : {5, 6, 7}) job->fill(step);
  world->run();
  job->listen();
  expect_good(5);
  EXPECT_THAT(snapshot(6).alarms, HasSubstr("unchanged since step 5"));
  EXPECT_THAT(snapshot(7).alarms, HasSubstr("unchanged since step 6"));
  expect_metric("unchanged", 2);
}

TEST_F(AlarmsTest, RefusedSnapshotLeavesLastGoodCommit) {
  start(fb::AlarmPolicy::Off, fb::AlarmPolicy::Refuse);
  save(5, job->all_units());
  expect_good(5);
  write_nan(2);
  save(6, job->all_units());
  EXPECT_EQ(snapshot(6).level, fb::SnapshotLevel::Failed);
  EXPECT_EQ(snapshot(6).reason,
            "run tiny step 6: refused: unit layers.0.experts.1.weights: 1 of its floats is NaN or "
            "infinite");
  EXPECT_THAT(job->log(*job->ranks[0]), ElementsAre(5));
  EXPECT_EQ(ask("alarms").at(0).at("refused"), true);
  EXPECT_EQ(ask("alarms").at(0).at("step"), 6);
  expect_metric("not_finite", 1);
  // The alarm is in the journal: a new daemon without a catalog reports it, and training continues.
  world->kill_daemon();
  world->lose_catalog();
  ASSERT_TRUE(world->start().ok());
  for (auto& rank : job->ranks) ASSERT_TRUE(rank->reconnect());
  EXPECT_EQ(ask("alarms").at(0).at("refused"), true);
  for (auto& rank : job->ranks) rank->byte_at = float_byte;
  save(7, job->all_units());
  expect_good(7);
}

TEST_F(AlarmsTest, PolicyOffRaisesNoAlarm) {
  start(fb::AlarmPolicy::Refuse, fb::AlarmPolicy::Off);
  write_nan(2);
  save(5, job->all_units());
  save(6, job->all_units());
  expect_good(5);
  expect_good(6);
  EXPECT_TRUE(ask("alarms").empty());
  expect_metric("not_finite", 0);
}

// A frozen parameter or a buffer: the trainer declares the unit constant.
TEST_F(AlarmsTest, ConstantUnitRaisesNoUnchangedAlarm) {
  start(fb::AlarmPolicy::Refuse);
  std::vector<uint32_t> flags(job->model.size());
  flags[1] = 1;
  ASSERT_TRUE(job->ranks[0]->register_units(job->model, {}, flags)) << job->ranks[0]->error();
  ASSERT_TRUE(job->ranks[1]->register_units(job->model)) << "says nothing, changes nothing";
  for (auto& rank : job->ranks) {
    rank->byte_at = [](ckpt::UnitId unit, ckpt::Step step, uint64_t salt, uint64_t offset) {
      return float_byte(unit, unit == 1 || step == 7 ? 5 : step, salt, offset);
    };
  }
  for (const ckpt::Step step : {5, 6}) {
    save(step, job->all_units());
    expect_good(step);
  }
  flags[1] = 2;
  EXPECT_FALSE(job->ranks[0]->register_units(job->model, {}, flags));
  EXPECT_THAT(job->ranks[0]->error(), HasSubstr("flags 0x2"));
  EXPECT_FALSE(job->ranks[0]->register_units(job->model, {}, {1}));
  EXPECT_THAT(job->ranks[0]->error(), HasSubstr("flags of 1 units"));
  save(7, {1});
  expect_good(7);
  flags[1] = 0;
  ASSERT_TRUE(job->ranks[0]->register_units(job->model, {}, flags));
  save(8, {1});
  EXPECT_EQ(snapshot(8).level, fb::SnapshotLevel::Failed);
  EXPECT_THAT(snapshot(8).reason, HasSubstr("unchanged since step 7"));
}

TEST_F(AlarmsTest, UnchangedUnitIsReportedAlsoAfterResume) {
  start(fb::AlarmPolicy::Warn);
  save(5, job->all_units());
  const auto same_bytes = [&] {
    for (auto& rank : job->ranks) {
      rank->byte_at = [](ckpt::UnitId unit, ckpt::Step step, uint64_t salt, uint64_t offset) {
        return float_byte(unit, unit == 1 ? 5 : step, salt, offset);
      };
    }
  };
  same_bytes();
  save(6, job->all_units());
  EXPECT_EQ(snapshot(6).alarms,
            "unit layers.0.experts.0.weights: unchanged since step 5 (checksum equal)");
  save(7, {1});
  EXPECT_THAT(snapshot(7).alarms, HasSubstr("unchanged since step 6"));
  expect_metric("unchanged", 2);
  // An expert that got no tokens may stay unchanged.
  for (const ckpt::Step step : {8, 9}) {
    job->ranks[0]->expert_tokens = {{0, 0, 40}};
    save(step, {1});
  }
  EXPECT_THAT(snapshot(8).alarms, HasSubstr("unchanged")) << "step 7 brought no counts";
  EXPECT_EQ(snapshot(9).alarms, "");
  // Versions of another lineage are looked up again.
  job->ranks[1]->die();
  world->run();
  job->replace(1);
  job->join(fb::ResumeMode::AtStep, 5);
  job->ranks[0]->expert_tokens.clear();
  same_bytes();
  save(8, {1});
  EXPECT_THAT(snapshot(8).alarms, HasSubstr("unchanged since step 5"));
}

// Regression: token counts that could not be read were taken for counts that were not reported.
TEST_F(AlarmsTest, UnreadableCatalogRaisesNoUnchangedAlarm) {
  start(fb::AlarmPolicy::Warn, fb::AlarmPolicy::Refuse);
  for (auto& rank : job->ranks) {
    rank->byte_at = [](ckpt::UnitId unit, ckpt::Step step, uint64_t salt, uint64_t offset) {
      return float_byte(unit, unit == 1 ? 5 : step, salt, offset);
    };
  }
  job->ranks[0]->expert_tokens = {{0, 0, 40}};
  save(5, job->all_units());
  save(6, {1});
  expect_good(6);
  for (auto& rank : job->ranks) rank->begin(7, job->plan({1}));
  world->run();
  job->fill(7);
  world->catalog().set_reads(ckpt::make_error(ckpt::ErrorCode::kUnavailable, "no descriptors"));
  world->run();
  job->listen();
  world->catalog().set_reads({});
  expect_good(7);
}

TEST_F(AlarmsTest, StaleExpertIsReportedWithoutRefusal) {
  start(fb::AlarmPolicy::Warn, fb::AlarmPolicy::Refuse);
  for (auto& rank : job->ranks) rank->staleness_max = 3;
  save(5, job->all_units());
  save(8, {0, 1, 2});
  expect_good(8);
  save(9, {0, 1, 2});
  EXPECT_EQ(snapshot(9).level, fb::SnapshotLevel::Durable);
  EXPECT_EQ(snapshot(9).alarms,
            "unit layers.0.experts.2.weights: not in the plan, its newest version is of step 5, 4 "
            "steps old");
  expect_metric("stale", 1);
  write_nan(1);
  save(12, {0, 1, 2});
  EXPECT_EQ(snapshot(12).level, fb::SnapshotLevel::Failed) << "what it holds is damaged as well";
  for (auto& rank : job->ranks) rank->byte_at = float_byte;
  save(13, job->all_units());
  expect_good(13);
}

TEST_F(AlarmsTest, RestartedDaemonChecksReopenedSnapshot) {
  start(fb::AlarmPolicy::Warn);
  save(5, job->all_units());
  write_nan(0);
  for (auto& rank : job->ranks) rank->begin(6, job->plan(job->all_units()));
  world->run();
  job->fill(6);
  world->kill_daemon();
  ASSERT_TRUE(world->start().ok());
  for (auto& rank : job->ranks) ASSERT_TRUE(rank->reconnect());
  world->run();
  job->listen();
  EXPECT_EQ(snapshot(6).level, fb::SnapshotLevel::Durable);
  EXPECT_THAT(snapshot(6).alarms, HasSubstr("unit trainer: 1 of its floats is NaN"));
}

TEST_F(AlarmsTest, UnknownPolicyIsRefused) {
  start(fb::AlarmPolicy::Warn);
  FakeTrainer other(*world, {.run = "other", .alarms = static_cast<fb::AlarmPolicy>(9)});
  EXPECT_FALSE(other.connect());
  EXPECT_THAT(other.error(), HasSubstr("alarms 9: no such policy"));
}

}  // namespace
}  // namespace ckptd::testing
