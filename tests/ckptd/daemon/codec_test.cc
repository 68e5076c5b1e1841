// The daemon with `codec = "zstd"`: trainers see the same state, and the disk holds fewer bytes.
#include "tests/ckptd/daemon/fragment_place.h"
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class CodecTest : public PruneTest {
 protected:
  CodecTest() : PruneTest({.segment_bytes = 768u << 10, .codec = CodecChoice::kZstd}) {}
  // A power loss drops the memory level, so later restores read the disk.
  void lose_power() {
    world.lose_power();
    ASSERT_TRUE(world.start().ok());
    world.run();
  }
  static constexpr char kRaw[] = R"(ckptd_fragment_bytes_total{codec="zstd"})";
  static constexpr char kStored[] = R"(ckptd_fragment_stored_bytes_total{codec="zstd"})";
};

TEST_F(CodecTest, DurableViewsRestoreAfterAnyCrash) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  EXPECT_GT(world.metric(kRaw), 300'000);
  EXPECT_LT(world.metric(kStored), world.metric(kRaw) * 0.9);
  job.commit(10);
  restart();
  expect_view(job, 5, {5, 5, 5, 5});
  expect_view(job, 10, {10, 10, 10, 10});
  EXPECT_GT(world.metric("ckptd_decoded_bytes_total"), 600'000);
  lose_power();
  expect_view(job, 10, {10, 10, 10, 10});
  world.lose_catalog();
  restart();
  expect_view(job, 10, {10, 10, 10, 10});
  expect_verified();
}

// Windows smaller than an encoded fragment: the fragment comes in slices.
TEST_F(CodecTest, FragmentsLargerThanWindowAreSliced) {
  Job job(world, 1, {.arena_bytes = 4u << 20, .slab_bytes = 512u << 10});
  job.start();
  job.commit(5);
  restart();
  expect_view(job, 5, {5, 5, 5, 5});  // by a session with slabs of 64 KiB
}

TEST_F(CodecTest, FlippedBitIsReportedAndRestoreFallsBack) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  job.commit(10);
  restart();
  const auto [path, offset] = fragment_place(world, 10, 2);
  world.disk().flip(path, offset + 20, 0x02);
  FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  const auto reply = root.query("verify", "{}");
  EXPECT_EQ(reply.exit_code, 4);
  const Json errors = Json::parse(reply.json).at("errors");
  ASSERT_THAT(errors, SizeIs(1));
  EXPECT_EQ(errors[0].at("run"), "tiny");
  EXPECT_EQ(errors[0].at("step"), 10);
  EXPECT_EQ(errors[0].at("unit"), job.model[2].name);
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  const auto restored = reader.restore(job.whole(10));
  ASSERT_EQ(restored.error, "");
  EXPECT_EQ(restored.steps, (std::vector<ckpt::Step>{10, 10, 5, 10}));
  EXPECT_THAT(restored.notes[2], HasSubstr("CRC32C mismatch of its encoded bytes"));
}

TEST_F(CodecTest, MemoryStaysRaw) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  const auto restored = job.ranks[0]->restore(job.whole(5));
  job.expect_bytes(restored, 5, 0);
  EXPECT_EQ(restored.segment_pieces, 0u);
  EXPECT_EQ(world.metric("ckptd_decoded_bytes_total"), 0);
}

// A store has no codec of its own: each fragment names its codec.
TEST_F(CodecTest, CodecsMixInOneStore) {
  Job job(world, 1);
  ckpt::Step next = 5;
  for (const CodecChoice codec : {CodecChoice::kNone, CodecChoice::kZstd, CodecChoice::kNone}) {
    world.stop();
    world.set_codec(codec);
    ASSERT_TRUE(world.start().ok());
    job.start(next == 5 ? fb::ResumeMode::Start : fb::ResumeMode::Latest);
    job.commit(next);
    next += 5;
  }
  restart();
  for (const ckpt::Step step : {5, 10, 15}) expect_view(job, step, {step, step, step, step});
  expect_verified();
}

TEST_F(CodecTest, PruneReclaimsEncodedBytes) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  commit_units(job, 10, {1, 3});
  commit_units(job, 15, {0, 1});
  const uint64_t before = used();
  ask(job, "prune", kLast1);
  ask_root("gc", "{}");
  EXPECT_LT(used(), before);
  expect_view(job, 15, {15, 15, 5, 10});
  expect_verified();
  restart();
  expect_view(job, 15, {15, 15, 5, 10});
  expect_verified();
}

// The daemon dies at any moment between the seals and the commit. The next daemon takes the slabs
// over, and encodes them again.
TEST_F(CodecTest, RestartedDaemonCommitsSealedSnapshot) {
  for (int polls = 0; polls < 12; ++polls) {
    SCOPED_TRACE(polls);
    Job job(world, 2);
    job.start(polls == 0 ? fb::ResumeMode::Start : fb::ResumeMode::Latest);
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
    expect_view(job, step, {step, step, step, step});
  }
  expect_verified();
}

TEST_F(CodecTest, SnapshotAbortedDuringEncodingLeavesNothingQueued) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  ASSERT_TRUE(job.ranks[0]->fill(5));
  world.daemon().poll();
  job.ranks[1]->die();
  world.run();
  EXPECT_EQ(world.metric("ckptd_queued_bytes"), 0);
  Job next(world, 2);
  next.start();
  next.commit(7);
  restart();
  expect_view(next, 7, {7, 7, 7, 7});
}

}  // namespace
}  // namespace ckptd::testing
