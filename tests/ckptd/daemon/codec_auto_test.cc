// Codecs chosen by the daemon with `auto`, and by a trainer for single units.
#include <optional>

#include "tests/ckptd/daemon/prune_fixture.h"
#include "tests/ckptd/io/paced_disk.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint64_t kUnitBytes = 4u << 20;

// Six random bits per byte: the best codec leaves three quarters.
std::byte noisy_byte(ckpt::UnitId unit, ckpt::Step step, uint64_t /*salt*/, uint64_t offset) {
  uint64_t mixed = (step << 48 ^ uint64_t{unit} << 32 ^ offset) * 0x9e3779b97f4a7c15ull;
  mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9ull;
  return static_cast<std::byte>(mixed >> 58);
}

class AutoCodecTest : public ::testing::Test {
 protected:
  // Encoding takes 1 ms for each MiB of a sample.
  void start(CodecChoice codec, double disk_bytes_per_second) {
    World::Options options{.arena_bytes_total = 256u << 20, .segment_bytes = 64u << 20};
    options.codec = codec;
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
  double metric(const std::string& name) {
    const std::string text = world->daemon().metrics_text();
    const size_t at = text.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name << " in\n" << text;
    return at == std::string::npos ? 0 : std::stod(text.substr(at + name.size() + 2));
  }
  double encoded_bytes() { return metric(R"(ckptd_fragment_bytes_total{codec="zstd"})"); }
  Json codecs() {
    const auto reply = job->ranks[0]->query("status", "{}");
    EXPECT_EQ(reply.exit_code, 0) << reply.json;
    return Json::parse(reply.json).at("codecs");
  }
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

TEST_F(AutoCodecTest, FollowsTheDisk) {
  start(CodecChoice::kAuto, 40e6);
  begin_training();
  job->commit(1);
  EXPECT_EQ(encoded_bytes(), 0) << "nothing is known yet";
  EXPECT_GT(metric("ckptd_codec_sampled_bytes_total"), 0);
  EXPECT_NEAR(metric("ckptd_disk_write_bytes_per_second"), 40e6, 4e6);
  job->commit(2);
  EXPECT_EQ(encoded_bytes(), 4 * kUnitBytes);
  EXPECT_EQ(metric("ckptd_codec_changes_total"), 1);
  const Json slow = codecs();
  ASSERT_THAT(slow, SizeIs(1));
  EXPECT_EQ(slow[0].at("units"), "layers.*.experts.*.weights");
  EXPECT_EQ(slow[0].at("run"), "tiny");
  EXPECT_EQ(slow[0].at("encoded"), true);
  EXPECT_LT(slow[0].at("ratio"), 0.95);
  EXPECT_NEAR(slow[0].at("encode_bytes_per_second").get<double>(), 1048e6, 1e6);

  disk->set_rate(20e9);
  ckpt::Step step = 3;
  for (; step < 20 && metric("ckptd_codec_changes_total") == 1; ++step) job->commit(step);
  EXPECT_EQ(codecs()[0].at("encoded"), false) << metric("ckptd_disk_write_bytes_per_second");
  const double before = encoded_bytes();
  job->commit(step);
  EXPECT_EQ(encoded_bytes(), before);
  expect_restores(2);
  expect_restores(step);
}

TEST_F(AutoCodecTest, LeavesAFastDiskAlone) {
  start(CodecChoice::kAuto, 20e9);
  begin_training();
  for (ckpt::Step step = 1; step <= 3; ++step) job->commit(step);
  EXPECT_EQ(encoded_bytes(), 0);
  EXPECT_EQ(metric("ckptd_codec_changes_total"), 0);
}

// A unit's registered codec overrides the configuration.
TEST_F(AutoCodecTest, TrainersChooseForUnits) {
  using fb::UnitCodec;
  start(CodecChoice::kNone, 20e9);
  job->add_rank();
  ASSERT_TRUE(job->ranks[0]->register_units(
      job->model, {UnitCodec::Zstd, UnitCodec::None, UnitCodec::Default, UnitCodec::Auto}));
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

TEST_F(AutoCodecTest, HostileCodecsAreRefused) {
  using fb::UnitCodec;
  start(CodecChoice::kAuto, 20e9);
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

// The daemon may end at any poll while its only slab is encoded and measured.
TEST_F(AutoCodecTest, EndsInTheMiddleOfAnything) {
  bool through = false;
  for (int polls = 0; !through; ++polls) {
    SCOPED_TRACE(polls);
    ASSERT_LT(polls, 1000);
    start(CodecChoice::kAuto, 40e6);
    job->model.resize(1);
    begin_training();
    job->begin(1);
    job->fill(1);
    for (int i = 0; i < polls; ++i) world->daemon().poll();
    through = metric("ckptd_codec_sampled_bytes_total") > 0;
    polls % 2 == 0 ? world->kill_daemon() : world->stop();
    job.reset();
    world.reset();
  }
}

// Removing a run removes its codec figures.
TEST_F(AutoCodecTest, ARunThatIsGoneIsForgotten) {
  start(CodecChoice::kAuto, 40e6);
  job->start();
  job->commit(1);
  EXPECT_THAT(codecs(), SizeIs(1));
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
  const auto status = root.query("status", "{}");
  EXPECT_THAT(Json::parse(status.json).at("codecs"), SizeIs(0));
}

}  // namespace
}  // namespace ckptd::testing
