// The daemon with `codec = "delta"`: units that change little are written as deltas, and the base
// of a delta stays as long as any commit needs it.
#include <algorithm>

#include "tests/ckptd/daemon/collision.h"
#include "tests/ckptd/daemon/fragment_place.h"
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// One byte in 61 of each unit changes at each step.
std::byte slow_change_byte(ckpt::UnitId unit, ckpt::Step step, uint64_t offset) {
  return state_byte(unit, offset % 61 == 0 ? step : 0, 0, offset);
}

class DeltaTest : public PruneTest {
 protected:
  DeltaTest() : PruneTest({.segment_bytes = 768u << 10, .codec = CodecChoice::kDelta}) {}

  std::unique_ptr<Job> start_job(uint32_t ranks = 2) {
    auto job = std::make_unique<Job>(world, ranks);
    start(*job);
    return job;
  }
  static void start(Job& job, fb::ResumeMode resume = fb::ResumeMode::Start) {
    job.model[0].bytes = 9'000;  // worth encoding, even half of it
    job.start(resume);
    train(job);
  }
  // From step `frozen` on the units do not change.
  static void train(Job& job, ckpt::Step frozen = ~ckpt::Step{0}) {
    for (auto& rank : job.ranks) {
      rank->byte_at = [frozen](ckpt::UnitId unit, ckpt::Step step, uint64_t, uint64_t offset) {
        return slow_change_byte(unit, std::min(step, frozen), offset);
      };
    }
  }
  // `bytes_of`: the step of the expected bytes, for each unit.
  void expect_bytes_of(Job& job, ckpt::Step step, const std::vector<ckpt::Step>& bytes_of) {
    const auto restored = job.restore_exact(step);
    ASSERT_EQ(restored.error, "");
    for (ckpt::UnitId unit = 0; unit < job.model.size(); ++unit) {
      for (uint64_t i = 0; i < job.model[unit].bytes; ++i) {
        ASSERT_EQ(restored.bytes[unit][i], slow_change_byte(unit, bytes_of[unit], i))
            << "unit " << unit << " byte " << i;
      }
    }
  }
  void expect_whole(Job& job, ckpt::Step step) {
    expect_bytes_of(job, step, {step, step, step, step});
  }
  double deltas() { return world.metric(R"(ckptd_fragment_bytes_total{codec="delta"})"); }
  double whole() {
    return world.metric(R"(ckptd_fragment_bytes_total{codec="zstd"})") +
           world.metric(R"(ckptd_fragment_bytes_total{codec="none"})");
  }
  Json newest(Job& job, ckpt::UnitId unit) {
    return ask_root("unit",
                    fmt::format(R"({{"target": "tiny", "unit": "{}"}})", job.model[unit].name))
        .at("versions")[0];
  }
  // Restarts after a power loss, with the catalog that survived or without one.
  void start_anew(bool without_catalog) {
    world.lose_power();
    if (without_catalog) world.lose_catalog();
    ASSERT_TRUE(world.start().ok());
    world.run();
  }
};

TEST_F(DeltaTest, ChangedUnitsAreWrittenAsDeltas) {
  const auto job = start_job();
  job->commit(5);
  EXPECT_EQ(deltas(), 0);
  const double first = whole();
  job->commit(10);
  job->commit(15);
  EXPECT_EQ(whole(), first);
  EXPECT_EQ(deltas(), 2 * first);
  EXPECT_LT(world.metric(R"(ckptd_fragment_stored_bytes_total{codec="delta"})"), deltas() / 5);
  EXPECT_GT(world.metric("ckptd_base_read_bytes_total"), first / 2);
  const Json version = newest(*job, 3);
  EXPECT_LT(version.at("stored_bytes"), version.at("bytes").get<uint64_t>() / 5);
  EXPECT_GT(version.at("base_bytes"), version.at("stored_bytes"));
  EXPECT_EQ(version.at("shared_bytes"), 0);
  for (const bool without_catalog : {false, true}) {
    start_anew(without_catalog);
    for (const ckpt::Step step : {5, 10, 15}) expect_whole(*job, step);
    expect_verified();
  }
}

TEST_F(DeltaTest, BaseIsRenewedAfterMaxDeltas) {
  const auto job = start_job();
  job->commit(1);
  const double first = whole();
  ckpt::Step step = 1;
  for (uint32_t i = 0; i < limits::kDeltasPerBaseMax; ++i) job->commit(++step);
  EXPECT_EQ(whole(), first);
  job->commit(++step);
  EXPECT_EQ(whole(), 2 * first) << "the number of deltas to one base is bounded";
  job->commit(++step);
  EXPECT_EQ(whole(), 2 * first);
  restart();
  for (; step > 0; --step) expect_whole(*job, step);
}

TEST_F(DeltaTest, HeavilyChangedUnitIsWrittenWhole) {
  const auto job = start_job();
  for (auto& rank : job->ranks) rank->byte_at = state_byte;
  job->commit(5);
  job->commit(10);
  EXPECT_EQ(deltas(), 0);
  restart();
  expect_view(*job, 10, {10, 10, 10, 10});
}

// A range needs an earlier version of exactly the same range as its base.
TEST_F(DeltaTest, DeltaNeedsBaseOfSameRange) {
  start_job(1)->commit(5);
  restart();
  const auto job = std::make_unique<Job>(world, 2);
  start(*job, fb::ResumeMode::Latest);
  job->commit(10);
  EXPECT_EQ(deltas(), 0);
  job->commit(15);
  EXPECT_GT(deltas(), 0);
  restart();
  for (const ckpt::Step step : {5, 10, 15}) expect_whole(*job, step);
}

TEST_F(DeltaTest, UnchangedDeltaIsShared) {
  const auto job = start_job();
  job->commit(5);
  job->commit(10);
  train(*job, 10);
  const double written = deltas() + whole();
  job->commit(15);
  EXPECT_EQ(deltas() + whole(), written);
  EXPECT_GT(world.metric("ckptd_same_bytes_total"), 0);
  EXPECT_EQ(newest(*job, 3).at("stored_bytes"), 0);
  ask(*job, "prune", kLast1);
  ask_root("gc", "{}");
  for (const bool without_catalog : {false, true}) {
    start_anew(without_catalog);
    expect_bytes_of(*job, 15, {10, 10, 10, 10});
    expect_verified();
  }
}

// Equal checksums of different bytes do not make a shared extent.
TEST_F(DeltaTest, BytesWithCollidingChecksumAreNotShared) {
  const auto job = start_job();
  job->commit(5);
  job->commit(10);
  for (auto& rank : job->ranks) {
    rank->byte_at = [&](ckpt::UnitId unit, ckpt::Step step, uint64_t, uint64_t offset) {
      const std::byte byte = slow_change_byte(unit, std::min<ckpt::Step>(step, 10), offset);
      return step == 15 ? collide(byte, offset, 1'000) : byte;
    };
  }
  job->commit(15);
  const double collided = world.metric("ckptd_same_bytes_total");
  EXPECT_LT(collided, job->model[1].bytes + job->model[2].bytes + job->model[3].bytes);
  restart();
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  const auto restored = reader.restore(job->whole(15));
  ASSERT_EQ(restored.error, "");
  for (ckpt::UnitId unit = 0; unit < job->model.size(); ++unit) {
    for (uint64_t i = 0; i < job->model[unit].bytes; ++i) {
      ASSERT_EQ(restored.bytes[unit][i], collide(slow_change_byte(unit, 10, i), i, 1'000))
          << "byte " << i;
    }
  }
}

// A delta is shared only while its base is intact.
TEST_F(DeltaTest, DeltaOfDamagedBaseIsNotShared) {
  const auto job = start_job();
  job->commit(5);
  job->commit(10);
  const auto [path, offset] = fragment_place(world, 5, 2);
  world.disk().flip(path, offset + 20, 0x02);
  train(*job, 10);
  const double written = whole();
  job->commit(15);
  EXPECT_GT(whole(), written);
  EXPECT_GT(world.metric("ckptd_same_bytes_total"), 0) << "the others are";
  restart();
  expect_bytes_of(*job, 15, {10, 10, 10, 10});
}

TEST_F(DeltaTest, BaseStaysUntilLastDeltaIsPruned) {
  const auto job = start_job();
  job->commit(5);
  job->commit(10);
  commit_units(*job, 15, {0, 1});
  const auto [path, base] = fragment_place(world, 5, 3);
  const uint64_t before = used();
  ask(*job, "prune", kLast1);
  ask_root("gc", "{}");
  EXPECT_LE(used(), before);
  for (const bool without_catalog : {false, true}) {
    start_anew(without_catalog);
    expect_bytes_of(*job, 15, {15, 15, 10, 10});
    expect_verified();
  }
  // Written whole, the units need no base.
  world.stop();
  world.set_codec(CodecChoice::kNone);
  ASSERT_TRUE(world.start().ok());
  Job again(world, 2);
  start(again, fb::ResumeMode::Latest);
  again.commit(20);
  restart();
  start(again, fb::ResumeMode::Latest);  // unpins the commit that the job had resumed from
  ask(again, "prune", kLast1);
  ask_root("gc", "{}");
  restart();
  expect_whole(again, 20);
  expect_verified();
  const auto file = world.disk().open(path, {});
  if (!file.ok()) return;  // the segment had no live bytes and was removed
  std::vector<std::byte> bytes(64);
  ASSERT_TRUE(world.disk().read_now(*file, base, bytes).ok());
  EXPECT_EQ(std::ranges::count(bytes, std::byte{0}), 64);
  world.disk().close(*file);
}

TEST_F(DeltaTest, DamagedBaseInvalidatesItsDeltas) {
  start_job(1)->commit(3);
  restart();
  const auto job = std::make_unique<Job>(world, 2);
  start(*job, fb::ResumeMode::Latest);
  for (const ckpt::Step step : {5, 10, 15}) job->commit(step);
  restart();
  const auto [path, offset] = fragment_place(world, 5, 2);
  world.disk().flip(path, offset + 20, 0x02);
  FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  const auto reply = root.query("verify", "{}");
  EXPECT_EQ(reply.exit_code, 4);
  const Json errors = Json::parse(reply.json).at("errors");
  ASSERT_THAT(errors, SizeIs(3)) << errors;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(errors[i].at("step"), 5 + 5 * i);
    EXPECT_EQ(errors[i].at("unit"), job->model[2].name);
  }
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  const auto restored = reader.restore(job->whole(15));
  ASSERT_EQ(restored.error, "");
  EXPECT_EQ(restored.steps, (std::vector<ckpt::Step>{15, 15, 3, 15}));
  EXPECT_THAT(restored.notes[2], HasSubstr("base of a delta: CRC32C mismatch"));
  for (uint64_t i = 0; i < job->model[2].bytes; ++i) {
    ASSERT_EQ(restored.bytes[2][i], slow_change_byte(2, 3, i)) << "byte " << i;
  }
}

TEST_F(DeltaTest, RestoreSkipsDamagedDelta) {
  const auto job = start_job();
  for (const ckpt::Step step : {5, 10, 15}) job->commit(step);
  restart();
  const auto [path, offset] = fragment_place(world, 15, 2);
  world.disk().flip(path, offset + 20, 0x02);
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  const auto restored = reader.restore(job->whole(15));
  ASSERT_EQ(restored.error, "");
  EXPECT_EQ(restored.steps, (std::vector<ckpt::Step>{15, 15, 10, 15}));
  EXPECT_THAT(restored.notes[2], HasSubstr("CRC32C mismatch of its encoded bytes"));
}

// Lost bytes are never used as a base.
TEST_F(DeltaTest, DamagedVersionIsNotUsedAsBase) {
  const auto job = start_job();
  job->commit(5);
  const auto [path, offset] = fragment_place(world, 5, 2);
  world.disk().flip(path, offset + 20, 0x02);
  const uint64_t header = place_of_fragment(world, 5, 0).extent_offset;
  const double first = whole();
  job->commit(10);
  EXPECT_GT(whole(), first) << "this piece is";
  EXPECT_GT(deltas(), 0);
  const double second = whole();
  world.disk().flip(path, header + 200, 0x02);
  job->commit(15);
  EXPECT_GT(whole(), second);
  restart();
  expect_whole(*job, 15);
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  EXPECT_EQ(reader.restore(job->whole(10)).error, "");
}

// A trainer may request deltas for single units.
TEST_F(DeltaTest, TrainerRequestsDeltasPerUnit) {
  world.stop();
  world.set_codec(CodecChoice::kNone);
  ASSERT_TRUE(world.start().ok());
  Job job(world, 1);
  start(job);
  ASSERT_TRUE(job.ranks[0]->register_units(
      job.model,
      {fb::UnitCodec::None, fb::UnitCodec::Zstd, fb::UnitCodec::Delta, fb::UnitCodec::Default}));
  job.commit(5);
  job.commit(10);
  EXPECT_EQ(deltas(), job.model[2].bytes);
  restart();
  expect_whole(job, 10);
  expect_verified();
}

// The daemon dies at any moment between the seals and the commit. The next daemon takes the slabs
// over, and looks the bases up again.
TEST_F(DeltaTest, RestartedDaemonCommitsSealedSnapshot) {
  for (int polls = 0; polls < 16; ++polls) {
    SCOPED_TRACE(polls);
    Job job(world, 2);
    start(job, polls == 0 ? fb::ResumeMode::Start : fb::ResumeMode::Latest);
    const ckpt::Step step = 5 + static_cast<ckpt::Step>(polls);
    job.begin(step);
    job.fill(step);
    for (int i = 0; i < polls; ++i) world.daemon().poll();
    world.kill_daemon();
    ASSERT_TRUE(world.start().ok());
    for (auto& rank : job.ranks) ASSERT_TRUE(rank->reconnect());
    world.run();
    job.listen();
    ASSERT_EQ(job.ranks[0]->snapshot(step).level, fb::SnapshotLevel::Durable)
        << job.ranks[0]->error();
    restart();
    expect_whole(job, step);
  }
  expect_verified();
}

// A prune during a snapshot leaves the bases that the snapshot has looked up.
TEST_F(DeltaTest, PruneKeepsBasesOfOpenSnapshot) {
  for (int polls = 0; polls < 24; polls += 3) {
    SCOPED_TRACE(polls);
    Job job(world, 1);
    start(job, polls == 0 ? fb::ResumeMode::Start : fb::ResumeMode::Latest);
    const ckpt::Step step = 10 * (1 + static_cast<ckpt::Step>(polls));
    job.commit(step);
    job.commit(step + 1);
    job.begin(step + 2);
    job.fill(step + 2);
    for (int i = 0; i < polls; ++i) world.daemon().poll();
    ask(job, "prune", kLast1);
    ask_root("gc", "{}");
    world.run();
    job.listen();
    ASSERT_EQ(job.ranks[0]->snapshot(step + 2).level, fb::SnapshotLevel::Durable);
    ask(job, "prune", kLast1);
    ask_root("gc", "{}");
    restart();
    expect_whole(job, step + 2);
    expect_verified();
  }
}

}  // namespace
}  // namespace ckptd::testing
