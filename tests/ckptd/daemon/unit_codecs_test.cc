// Codecs chosen by a trainer for single units.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <optional>
#include <sstream>

#include "tests/ckptd/daemon/prune_fixture.h"
#include "tests/ckptd/io/paced_disk.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kUnitBytes = 4u << 20;

// Six random bits per byte: the best codec leaves three quarters.
std::byte noisy_byte(ckpt::UnitId unit, ckpt::Step step, uint64_t /*salt*/, uint64_t offset) {
  uint64_t mixed = (step << 48 ^ uint64_t{unit} << 32 ^ offset) * 0x9e3779b97f4a7c15ull;
  mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9ull;
  return static_cast<std::byte>(mixed >> 58);
}

class UnitCodecsTest : public ::testing::Test {
 protected:
  void start(double disk_bytes_per_second) {
    World::Options options{.arena_bytes_total = 256u << 20, .segment_bytes = 64u << 20};
    options.stopwatch = [this] { return disk->read_clock(std::chrono::milliseconds(1)); };
    world.emplace(options);
    disk.emplace(world->disk(), disk_bytes_per_second);
    world->set_door(&*disk);
    ASSERT_TRUE(world->start().ok());
    job.emplace(*world, 1, FakeTrainer::Options{.arena_bytes = 64u << 20, .slab_bytes = 8u << 20});
    job->model.clear();
    for (uint32_t expert = 0; expert < 4; ++expert) {
      ckpt::UnitSpec& unit = job->model.emplace_back();
      unit.name = fmt::format("layers.0.experts.{}.weights", expert);
      unit.bytes = kUnitBytes;
    }
  }
  void begin_training() {
    job->start();
    job->ranks[0]->byte_at = noisy_byte;
  }
  void TearDown() override {
    job.reset();
    world.reset();
  }
  double encoded_bytes() { return world->metric(R"(ckptd_fragment_bytes_total{codec="zstd"})"); }
  void expect_restores(ckpt::Step step) {
    world->kill_daemon();
    disk.emplace(world->disk(), 1e9);
    world->set_door(&*disk);
    ASSERT_TRUE(world->start().ok());
    FakeTrainer reader(*world, {});
    ASSERT_TRUE(reader.connect());
    const auto restored = reader.restore(job->whole(step));
    ASSERT_EQ(restored.error, "");
    for (ckpt::UnitId unit = 0; unit < job->model.size(); ++unit) {
      ASSERT_EQ(restored.steps[unit], step);
      for (uint64_t i = 0; i < kUnitBytes; ++i) {
        ASSERT_EQ(restored.bytes[unit][i], noisy_byte(unit, step, 0, i)) << unit << " byte " << i;
      }
    }
  }

  std::optional<World> world;
  std::optional<PacedDisk> disk;
  std::optional<Job> job;
};

TEST_F(UnitCodecsTest, DiskRateMatchesWrites) {
  start(40e6);
  begin_training();
  job->commit(1);
  EXPECT_NEAR(world->metric("ckptd_disk_write_bytes_per_second"), 40e6, 4e6);
}

// A unit's registered codec overrides the configuration.
TEST_F(UnitCodecsTest, TrainerCodecOverridesConfiguration) {
  using fb::UnitCodec;
  start(20e9);
  job->add_rank();
  ASSERT_TRUE(job->ranks[0]->register_units(
      job->model, {UnitCodec::Zstd, UnitCodec::None, UnitCodec::Default, UnitCodec::None}));
  job->join(fb::ResumeMode::Start);
  job->ranks[0]->byte_at = noisy_byte;
  job->commit(1);
  EXPECT_EQ(encoded_bytes(), kUnitBytes);
  // A session without codecs changes nothing. New codecs apply from its next snapshot on.
  ASSERT_TRUE(job->ranks[0]->register_units(job->model));
  job->commit(2);
  EXPECT_EQ(encoded_bytes(), 2 * kUnitBytes);
  ASSERT_TRUE(
      job->ranks[0]->register_units(job->model, std::vector<UnitCodec>(4, UnitCodec::Zstd)));
  job->commit(3);
  EXPECT_EQ(encoded_bytes(), 6 * kUnitBytes);
  expect_restores(3);
}

TEST_F(UnitCodecsTest, HostileCodecsAreRefused) {
  using fb::UnitCodec;
  start(20e9);
  FakeTrainer trainer(*world, {});
  ASSERT_TRUE(trainer.connect());
  EXPECT_FALSE(trainer.register_units(job->model, {UnitCodec::Zstd}));
  EXPECT_THAT(trainer.error(), HasSubstr("run tiny: codecs of 1 units, but 4 units"));
  EXPECT_FALSE(trainer.register_units(job->model, std::vector<UnitCodec>(5, UnitCodec::None)));
  EXPECT_THAT(trainer.error(), HasSubstr("codecs of 5 units, but 4 units"));
  std::vector<UnitCodec> codecs(4, UnitCodec::None);
  codecs[2] = static_cast<UnitCodec>(5);
  EXPECT_FALSE(trainer.register_units(job->model, codecs));
  EXPECT_THAT(trainer.error(), HasSubstr("unit layers.0.experts.2.weights: no such codec: 5"));
  codecs[2] = UnitCodec::Auto;
  EXPECT_FALSE(trainer.register_units(job->model, codecs));
  EXPECT_THAT(trainer.error(),
              HasSubstr("unit layers.0.experts.2.weights: codec auto was removed: use none, or "
                        "zstd where the disk is slower than about 1 GB/s"));
  EXPECT_EQ(world->daemon().metrics_text().find(R"(run="tiny")"), std::string::npos);
  EXPECT_TRUE(trainer.register_units(job->model)) << trainer.error();
  // A codec of another user has no effect.
  FakeTrainer stranger(*world, {.uid = 77});
  ASSERT_TRUE(stranger.connect());
  EXPECT_FALSE(stranger.register_units(job->model, std::vector<UnitCodec>(4, UnitCodec::Zstd)));
  trainer.die();
  job->start();
  job->commit(1);
  EXPECT_EQ(encoded_bytes(), 0);
}

// Warnings of the codec auto in what `body` logs.
template <typename Body>
int auto_warnings(Body&& body) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "kept", std::make_shared<spdlog::sinks::ostream_sink_st>(log)));
  body();
  spdlog::set_default_logger(before);
  const std::string text = log.str();
  int found = 0;
  for (size_t at = text.find("codec auto"); at != std::string::npos;
       at = text.find("codec auto", at + 1)) {
    ++found;
  }
  return found;
}

TEST_F(UnitCodecsTest, RemovedCodecAutoIsIgnoredWithWarning) {
  const std::vector<fb::UnitCodec> codecs(4, fb::UnitCodec::Auto);
  start(20e9);
  begin_training();
  job->commit(1);
  const int warnings = auto_warnings([&] {
    for (int rank = 0; rank < 2; ++rank) {  // both ranks of the trainer register
      EXPECT_TRUE(job->ranks[0]->register_units(job->model, codecs)) << job->ranks[0]->error();
    }
  });
  EXPECT_EQ(warnings, 1);
  job->commit(2);
  EXPECT_EQ(encoded_bytes(), 0);
  expect_restores(2);
}

// Removing a run forgets the codecs that its trainers asked for.
TEST_F(UnitCodecsTest, RemovedRunForgetsItsCodecs) {
  start(20e9);
  job->add_rank();
  ASSERT_TRUE(job->ranks[0]->register_units(job->model,
                                            std::vector<fb::UnitCodec>(4, fb::UnitCodec::Zstd)));
  job->join(fb::ResumeMode::Start);
  job->ranks[0]->byte_at = noisy_byte;
  job->commit(1);
  EXPECT_EQ(encoded_bytes(), 4 * kUnitBytes);
  job->ranks[0]->send(fb::LeaveGroupT());
  world->run();
  job->ranks[0]->die();
  world->run();
  world->tick(std::chrono::seconds(60));
  world->run();
  FakeTrainer root(*world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  const auto removed = root.query("rm", R"({"target": "tiny", "force": true})");
  EXPECT_EQ(removed.exit_code, 0) << removed.json;
  begin_training();
  job->commit(1);
  EXPECT_EQ(encoded_bytes(), 4 * kUnitBytes);
}

}  // namespace
}  // namespace ckptd::testing
