// Unchanged units: bytes on the disk are shared instead of written again, and stay as long as any
// commit refers to them.
#include <algorithm>
#include <set>

#include "tests/ckptd/daemon/collision.h"
#include "tests/ckptd/daemon/fragment_place.h"
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::SizeIs;

// Slabs with several units: a large unit that is trained, a unit that never changes, and small
// units that share a block.
class DedupTest : public PruneTest {
 protected:
  DedupTest() : PruneTest({.segment_bytes = 2u << 20}) {}
  explicit DedupTest(const World::Options& options) : PruneTest(options) {}

  static inline const FakeTrainer::Options kTrains = {.arena_bytes = 4u << 20,
                                                      .slab_bytes = 512u << 10};
  static constexpr ckpt::UnitId kFrozen = 3;
  static constexpr uint64_t kFrozenBytes = 200'000;

  std::unique_ptr<Job> start_job() {
    auto job = std::make_unique<Job>(world, 2, kTrains);
    job->start();
    frozen_in(*job, {kFrozen});
    return job;
  }
  // These units keep the bytes of step 0 at every step.
  static void frozen_in(Job& job, const std::set<ckpt::UnitId>& frozen) {
    for (auto& rank : job.ranks) {
      rank->byte_at = [frozen](ckpt::UnitId unit, ckpt::Step step, uint64_t, uint64_t offset) {
        return state_byte(unit, frozen.contains(unit) ? 0 : step, 0, offset);
      };
    }
  }
  // `bytes_of`: the step of the expected bytes, for each unit.
  void expect_bytes_of(Job& job, ckpt::Step step, const std::vector<ckpt::Step>& bytes_of) {
    const auto restored = job.restore_exact(step);
    ASSERT_EQ(restored.error, "");
    for (ckpt::UnitId unit = 0; unit < job.model.size(); ++unit) {
      for (uint64_t i = 0; i < job.model[unit].bytes; ++i) {
        ASSERT_EQ(restored.bytes[unit][i], state_byte(unit, bytes_of[unit], 0, i))
            << "unit " << unit << " byte " << i;
      }
    }
  }
  // Number of nonzero bytes in a few blocks at this place; 0 if there is no file.
  size_t bytes_at(const std::string& path, uint64_t offset) {
    const auto file = world.disk().open(path, {});
    if (!file.ok()) return 0;
    std::vector<std::byte> bytes(4 * ckpt::kBlockBytes);
    const uint64_t from = offset / ckpt::kBlockBytes * ckpt::kBlockBytes + ckpt::kBlockBytes;
    EXPECT_TRUE(world.disk().read_now(*file, from, bytes).ok());
    world.disk().close(*file);
    return bytes.size() - static_cast<size_t>(std::ranges::count(bytes, std::byte{0}));
  }
  Json versions(ckpt::UnitId unit, Job& job) {
    return ask_root("unit",
                    fmt::format(R"({{"target": "tiny", "unit": "{}"}})", job.model[unit].name))
        .at("versions");
  }
};

TEST_F(DedupTest, UnchangedUnitIsNotRewritten) {
  const auto job = start_job();
  job->commit(5);
  EXPECT_EQ(world.metric("ckptd_same_bytes_total"), 0u);
  const double written = world.metric("ckptd_written_bytes_total");
  job->commit(10);
  EXPECT_EQ(world.metric("ckptd_same_bytes_total"), kFrozenBytes);
  EXPECT_LE(world.metric("ckptd_written_bytes_total") - written,
            written - kFrozenBytes + (16u << 10));
  const Json of_frozen = versions(kFrozen, *job);
  ASSERT_THAT(of_frozen, SizeIs(2));
  EXPECT_EQ(of_frozen[0].at("step"), 10);
  EXPECT_EQ(of_frozen[0].at("bytes"), kFrozenBytes);
  EXPECT_EQ(of_frozen[0].at("stored_bytes"), 0);
  EXPECT_EQ(of_frozen[0].at("shared_bytes"), kFrozenBytes);
  EXPECT_EQ(of_frozen[1].at("stored_bytes"), kFrozenBytes);
  EXPECT_EQ(of_frozen[1].at("shared_bytes"), 0);
  EXPECT_EQ(versions(2, *job)[0].at("shared_bytes"), 0);
  restart();
  expect_bytes_of(*job, 5, {5, 5, 5, 0});
  expect_bytes_of(*job, 10, {10, 10, 10, 0});
  expect_verified();
}

// A commit that writes no bytes is as durable as any other.
TEST_F(DedupTest, CommitWithoutNewBytesIsDurable) {
  const auto job = start_job();
  frozen_in(*job, {0, 1, 2, 3});
  job->commit(5);
  const double extents = world.metric("ckptd_extents_total");
  job->commit(10);
  EXPECT_EQ(world.metric("ckptd_extents_total"), extents);
  world.lose_power();
  ASSERT_TRUE(world.start().ok());
  world.run();
  expect_bytes_of(*job, 10, {0, 0, 0, 0});
  world.lose_catalog();
  restart();
  expect_bytes_of(*job, 10, {0, 0, 0, 0});
  expect_verified();
}

TEST_F(DedupTest, EqualCrcAloneDoesNotShareBytes) {
  const auto job = start_job();
  job->commit(5);
  for (auto& rank : job->ranks) {
    rank->byte_at = [](ckpt::UnitId unit, ckpt::Step step, uint64_t, uint64_t offset) {
      const std::byte byte = state_byte(unit, unit == kFrozen ? 0 : step, 0, offset);
      return unit == kFrozen ? collide(byte, offset, 1'234) : byte;
    };
  }
  job->commit(10);
  const Json of_frozen = versions(kFrozen, *job);
  ASSERT_THAT(of_frozen, SizeIs(2));
  EXPECT_EQ(of_frozen[0].at("crc32c"), of_frozen[1].at("crc32c"));
  // The half that the other rank saved is shared.
  EXPECT_EQ(of_frozen[0].at("stored_bytes"), kFrozenBytes / 2);
  EXPECT_EQ(of_frozen[0].at("shared_bytes"), kFrozenBytes / 2);
  restart();
  FakeTrainer reader(world, {.arena_bytes = 2u << 20, .slab_bytes = 64u << 10});
  ASSERT_TRUE(reader.connect());
  const auto restored = reader.restore(job->whole(10));
  ASSERT_EQ(restored.error, "");
  for (uint64_t i = 0; i < kFrozenBytes; ++i) {
    ASSERT_EQ(restored.bytes[kFrozen][i], collide(state_byte(kFrozen, 0, 0, i), i, 1'234)) << i;
  }
}

// Lost bytes are not shared: the next commit writes them again.
TEST_F(DedupTest, DamagedBytesAreRewritten) {
  const auto job = start_job();
  job->commit(5);
  const auto [path, offset] = fragment_place(world, 5, kFrozen);
  world.disk().flip(path, offset + 7, 0x10);
  job->commit(10);
  EXPECT_EQ(world.metric("ckptd_same_bytes_total"), kFrozenBytes / 2);
  restart();
  expect_bytes_of(*job, 10, {10, 10, 10, 0});
}

// Recovery requires the headers of all extents that a commit names. A commit that shared an extent
// with a lost header would be lost, too.
TEST_F(DedupTest, ExtentWithDamagedHeaderIsNotShared) {
  const auto job = start_job();
  frozen_in(*job, {0, 1, 2, 3});
  job->commit(5);
  const PlaceOfFragment place = place_of_fragment(world, 5, kFrozen);
  world.disk().flip(place.path, place.extent_offset + 9, 0x10);
  const double extents = world.metric("ckptd_extents_total");
  job->commit(10);
  EXPECT_GE(world.metric("ckptd_extents_total"), extents + 1);
  EXPECT_GE(world.metric("ckptd_same_bytes_total"), kFrozenBytes / 2);
  world.lose_catalog();
  restart();
  expect_bytes_of(*job, 10, {0, 0, 0, 0});
}

// A header damaged later costs only its own commit. Commits that share its payload are intact.
TEST_F(DedupTest, DamagedHeaderSparesCommitsThatSharePayload) {
  const auto job = start_job();
  for (const ckpt::Step step : {5, 10, 15}) job->commit(step);
  ASSERT_EQ(world.metric("ckptd_same_bytes_total"), 2 * kFrozenBytes);
  const PlaceOfFragment place = place_of_fragment(world, 5, kFrozen);
  world.disk().flip(place.path, place.extent_offset + 9, 0x10);
  world.lose_catalog();
  restart();
  expect_bytes_of(*job, 15, {15, 15, 15, 0});
  const Json log = ask_root("log", R"({"target": "tiny"})");
  ASSERT_EQ(log.size(), 3u);
  for (const Json& commit : log) {
    EXPECT_EQ(commit.at("level") == "damaged", commit.at("step") == 5) << commit;
  }
}

// Verify reads the header of a file again, although the file was open before.
TEST_F(DedupTest, VerifyFindsSegmentHeaderDamagedAfterDedup) {
  const auto job = start_job();
  job->commit(5);
  job->commit(10);
  EXPECT_EQ(world.metric("ckptd_same_bytes_total"), kFrozenBytes);
  world.disk().flip(fragment_place(world, 5, kFrozen).first, 9, 0x10);
  FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  const auto reply = root.query("verify", "{}");
  EXPECT_EQ(reply.exit_code, 4) << reply.json;
  EXPECT_THAT(reply.json, ::testing::HasSubstr("the header of the file is damaged"));
}

// A restore skips versions that share the lost bytes, and reads each place once.
TEST_F(DedupTest, RestoreReadsSharedDamagedBytesOnce) {
  const auto job = start_job();
  job->commit(5);
  frozen_in(*job, {});
  job->commit(6);
  for (auto& rank : job->ranks) {
    rank->byte_at = [](ckpt::UnitId unit, ckpt::Step step, uint64_t, uint64_t offset) {
      return state_byte(unit, unit == kFrozen ? 7 : step, 0, offset);
    };
  }
  for (const ckpt::Step step : {7, 8, 9, 10}) job->commit(step);
  EXPECT_EQ(world.metric("ckptd_same_bytes_total"), 3 * kFrozenBytes);
  const auto [path, offset] = fragment_place(world, 10, kFrozen);
  world.disk().flip(path, offset + 7, 0x10);
  restart();
  FakeTrainer reader(world, {.arena_bytes = 2u << 20, .slab_bytes = 64u << 10});
  ASSERT_TRUE(reader.connect());
  const auto restored = reader.restore(job->whole(10));
  ASSERT_EQ(restored.error, "");
  EXPECT_EQ(restored.steps[kFrozen], 6u);
  EXPECT_EQ(restored.notes[kFrozen].find(';'), std::string::npos) << restored.notes[kFrozen];
  for (uint64_t i = 0; i < kFrozenBytes; ++i) {
    ASSERT_EQ(restored.bytes[kFrozen][i], state_byte(kFrozen, 6, 0, i)) << i;
  }
}

// The commit that wrote the bytes is deleted. The bytes stay until no commit shares them.
TEST_F(DedupTest, SharedBytesStayUntilLastReference) {
  const auto job = start_job();
  job->commit(5);
  job->commit(10);
  job->commit(15);
  const uint64_t before = used();
  ask(*job, "prune", kLast1);
  ask_root("gc", "{}");
  EXPECT_LT(used(), before);
  expect_bytes_of(*job, 15, {15, 15, 15, 0});
  expect_verified();
  const Json frozen_versions = versions(kFrozen, *job);
  ASSERT_THAT(frozen_versions, SizeIs(1));
  ask_root("rebuild", "{}");
  EXPECT_EQ(versions(kFrozen, *job), frozen_versions);
  expect_bytes_of(*job, 15, {15, 15, 15, 0});
  expect_verified();

  const auto [path, offset] = fragment_place(world, 5, kFrozen);
  EXPECT_NE(bytes_at(path, offset), 0u);
  frozen_in(*job, {});
  job->commit(20);
  ask(*job, "prune", kLast1);
  ask_root("gc", "{}");
  EXPECT_EQ(bytes_at(path, offset), 0u);
  expect_verified();
}

// A later snapshot overtakes a snapshot that shares bytes. Then everything else is pruned.
TEST_F(DedupTest, BytesSharedByOpenSnapshotAreNotPruned) {
  const auto job = start_job();
  job->commit(5);
  job->begin(10);
  ASSERT_TRUE(job->ranks[0]->fill(10));
  world.run();
  EXPECT_EQ(world.metric("ckptd_same_bytes_total"), kFrozenBytes / 2);
  frozen_in(*job, {});
  job->commit(15);
  ask(*job, "prune", kLast1);
  ask_root("gc", "{}");
  frozen_in(*job, {kFrozen});
  ASSERT_TRUE(job->ranks[1]->fill(10));
  world.run();
  job->listen();
  ASSERT_EQ(job->ranks[0]->snapshot(10).level, fb::SnapshotLevel::Durable);
  expect_bytes_of(*job, 10, {10, 10, 10, 0});
  expect_verified();
  // The commit now refers to the bytes itself, so a prune of other commits leaves them.
  ask(*job, "prune", R"({"target": "tiny", "rules": {"last": 2}})");
  ask_root("gc", "{}");
  restart();
  expect_bytes_of(*job, 10, {10, 10, 10, 0});
  expect_verified();
}

// The same with a prune at any moment between the seals and the commit.
TEST_F(DedupTest, PruneBetweenSealAndCommitKeepsSharedBytes) {
  const auto job = start_job();
  job->commit(5);
  for (int polls = 0; polls < 12; ++polls) {
    SCOPED_TRACE(polls);
    const ckpt::Step step = 10 + static_cast<ckpt::Step>(polls);
    job->begin(step);
    job->fill(step);
    for (int i = 0; i < polls; ++i) world.daemon().poll();
    fb::QueryT prune;
    prune.verb = "prune";
    prune.args = kLast1;
    job->ranks[0]->send(std::move(prune));
    world.run();
    job->listen();
    ASSERT_EQ(job->ranks[0]->snapshot(step).level, fb::SnapshotLevel::Durable);
    expect_verified();
  }
  EXPECT_GE(world.metric("ckptd_same_bytes_total"), kFrozenBytes);
  ask_root("gc", "{}");
  restart();
  expect_bytes_of(*job, 21, {21, 21, 21, 0});
  expect_verified();
}

TEST_F(DedupTest, RemovedCommitLeavesSharedBytes) {
  const auto job = start_job();
  job->commit(5);
  job->commit(10);
  ask_root("rm", R"({"target": "tiny@5"})");
  ask_root("gc", "{}");
  restart();
  expect_bytes_of(*job, 10, {10, 10, 10, 0});
  expect_verified();
}

TEST_F(DedupTest, RemovedRunReclaimsSharedBytes) {
  const auto job = start_job();
  job->commit(5);
  job->commit(10);
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  world.run();
  world.tick(std::chrono::seconds(61));
  ask_root("rm", R"({"target": "tiny"})");
  ask_root("gc", "{}");
  EXPECT_EQ(segment_files(), 0u);
}

class ScrubbedDedupTest : public DedupTest {
 protected:
  ScrubbedDedupTest()
      : DedupTest({.segment_bytes = 2u << 20, .scrub_bytes_per_second = 8u << 20}) {}
  // Bytes that scrub has read in all, once it had time to finish.
  uint64_t scrubbed() {
    for (int i = 0; i < 200; ++i) {
      world.tick(std::chrono::milliseconds(100));
      world.run();
    }
    return world.metric("ckptd_scrub_bytes_total");
  }
};

// Scrub reads shared bytes once, with the commit that wrote them while that commit exists.
TEST_F(ScrubbedDedupTest, SharedBytesAreReadBackOnce) {
  const auto job = start_job();
  frozen_in(*job, {0, 1, 2, 3});
  job->commit(5);
  const uint64_t all = scrubbed();
  EXPECT_GT(all, kFrozenBytes);
  job->commit(10);
  EXPECT_EQ(scrubbed(), all);
  ask_root("scrub", R"({"start": true})");
  EXPECT_EQ(scrubbed(), 2 * all);
  ask_root("rm", R"({"target": "tiny@5"})");
  ask_root("scrub", R"({"start": true})");
  EXPECT_EQ(scrubbed(), 3 * all);
}

class EncodedDedupTest : public DedupTest {
 protected:
  EncodedDedupTest() : DedupTest({.segment_bytes = 2u << 20, .codec = CodecChoice::kZstd}) {}
};

// Raw bytes are compared. Neither the encoded bytes nor the codec matter.
TEST_F(EncodedDedupTest, EncodedBytesAreSharedAcrossCodecs) {
  const auto job = start_job();
  job->commit(5);
  job->commit(10);
  EXPECT_EQ(world.metric("ckptd_same_bytes_total"), kFrozenBytes);
  EXPECT_EQ(versions(kFrozen, *job)[0].at("stored_bytes"), 0);
  EXPECT_LT(versions(kFrozen, *job)[0].at("shared_bytes"), kFrozenBytes);
  world.stop();
  world.set_codec(CodecChoice::kNone);
  ASSERT_TRUE(world.start().ok());
  const auto next = std::make_unique<Job>(world, 2, kTrains);
  next->start(fb::ResumeMode::Latest);
  frozen_in(*next, {kFrozen});
  next->commit(15);
  EXPECT_EQ(world.metric("ckptd_same_bytes_total"), kFrozenBytes);
  restart();
  expect_bytes_of(*next, 15, {15, 15, 15, 0});
  expect_verified();
}

}  // namespace
}  // namespace ckptd::testing
