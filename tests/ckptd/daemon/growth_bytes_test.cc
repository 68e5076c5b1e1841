// Bytes of grown units: alarms, codecs, slabs and the memory level.

#include <cstring>

#include "tests/ckptd/daemon/growth_fixture.h"
#include "tests/ckptd/daemon/store_files.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(GrowthTest, MemoryLevelServesGrownUnits) {
  grow_and_commit();
  tell(job, {}, 0);
  job.save(15, job.plan_in_memory({kAdapter}), fb::SnapshotLevel::Durable);
  fb::OpenRestoreT request = job.whole(15);
  request.memory = true;
  const auto restored = job.ranks[0]->restore(request);
  ASSERT_EQ(restored.error, "");
  EXPECT_EQ(restored.steps[kAdapter], 15u);
  expect_view(job, 15, {15, 15, 15, 15, 10});
}

TEST_F(GrowthTest, SlabsSufficeForLargeGrowth) {
  job.commit(5);
  grow(job, {floats("adapter", 100'000), floats("router", 3)});
  job.commit(10);
  expect_view(job, 10, {10, 10, 10, 10, 10, 10});
}

class GrowthAlarmsTest : public GrowthTest {
 protected:
  GrowthAlarmsTest() : GrowthTest({.alarms = fb::AlarmPolicy::Warn}) {
    for (auto& rank : job.ranks) rank->byte_at = number_byte;
  }
  // A float of step and unit.
  static std::byte number_byte(ckpt::UnitId unit, ckpt::Step step, uint64_t, uint64_t offset) {
    const auto value = static_cast<float>(step * 16 + unit);
    std::array<std::byte, sizeof value> bytes;
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes[offset % sizeof value];
  }
  // Grows by an adapter all of whose bytes are this one.
  void grow_by_bytes(std::byte fill) {
    grow(job, {floats("adapter", 100)});
    for (auto& rank : job.ranks) {
      rank->byte_at = [fill](ckpt::UnitId unit, ckpt::Step step, uint64_t salt, uint64_t offset) {
        return unit == kAdapter ? fill : number_byte(unit, step, salt, offset);
      };
    }
  }
  const std::string& alarms(ckpt::Step step) { return job.ranks[0]->snapshot(step).alarms; }
};

TEST_F(GrowthAlarmsTest, NotFiniteNamesTheNewUnit) {
  job.commit(5);
  grow_by_bytes(std::byte{0xff});
  job.commit(10);
  EXPECT_THAT(alarms(10), HasSubstr("unit adapter"));
  EXPECT_THAT(alarms(10), HasSubstr("100"));
}

TEST_F(GrowthAlarmsTest, UnchangedIsNotedFromSecondCommitOn) {
  job.commit(5);
  grow_by_bytes(std::byte{0});
  job.commit(10);
  EXPECT_EQ(alarms(10), "");
  job.commit(15);
  EXPECT_THAT(alarms(15), HasSubstr("adapter"));
  for (auto& rank : job.ranks) rank->grown_flags = 1;
  job.commit(20);
  EXPECT_EQ(alarms(20), "") << "constant, as its trainer says";
}

TEST_F(GrowthAlarmsTest, ExpertOfAnotherLineageIsNotStale) {
  job.commit(5);
  grow(job, {expert()});
  job.commit(10);
  const auto fork = resumed(fb::ResumeMode::AtStep, 5);
  for (auto& rank : fork->ranks) {
    rank->byte_at = number_byte;
    rank->staleness_max = 10;
  }
  for (const ckpt::Step step : {30, 40}) fork->commit(step, 3);
  EXPECT_EQ(fork->ranks[0]->snapshot(40).alarms, "");
}

class EncodedGrowthTest : public GrowthTest {
 protected:
  EncodedGrowthTest() : GrowthTest({.codec = CodecChoice::kDelta}) {
    for (auto& rank : job.ranks) {
      rank->byte_at = [](ckpt::UnitId, ckpt::Step step, uint64_t, uint64_t offset) {
        return static_cast<std::byte>(offset % 4096 == 0 ? step : 0);
      };
    }
  }
};

TEST_F(EncodedGrowthTest, GrownUnitsAreEncodedAndDeltas) {
  job.commit(5);
  grow(job, {floats("adapter", 30'000)});
  for (const ckpt::Step step : {10, 15}) job.commit(step);
  bool encoded = false;
  for (const auto& record : journal_records(world.disk())) {
    const auto* commit = record.body.AsCommitted();
    if (commit == nullptr) continue;
    for (const fb::Fragment& fragment : commit->fragments) {
      encoded = encoded || (fragment.unit() == kAdapter && fragment.codec() != 0);
    }
  }
  EXPECT_TRUE(encoded);
  restart();
  expect_verified();
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  const auto restored = reader.restore(job.whole(15));
  ASSERT_EQ(restored.error, "");
  EXPECT_EQ(restored.bytes[kAdapter].at(4096), std::byte{15});
}

TEST_F(EncodedGrowthTest, TrainerChoosesCodecOfItsGrowth) {
  job.commit(5);
  grow(job, {floats("adapter", 30'000)});
  for (auto& rank : job.ranks) rank->grown_codec = fb::UnitCodec::None;
  job.commit(10);
  for (const auto& record : journal_records(world.disk())) {
    const auto* commit = record.body.AsCommitted();
    if (commit == nullptr) continue;
    for (const fb::Fragment& fragment : commit->fragments) {
      if (fragment.unit() == kAdapter) {
        EXPECT_EQ(fragment.codec(), 0u);
      }
    }
  }
}

}  // namespace
}  // namespace ckptd::testing
