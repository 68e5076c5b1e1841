// Old commits are encoded in the background: which extents move, which requests have priority, and
// the state after a crash at any moment. Virtual time.
#include "ckptd/daemon_store.h"
#include "ckptd/limits.h"
#include "tests/ckptd/daemon/fragment_place.h"
#include "tests/ckptd/daemon/prune_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::chrono::milliseconds kAfter{10'000};
constexpr std::chrono::milliseconds kTick{100};
constexpr uint64_t kModelBytes = 331'000;

class RecodeTest : public PruneTest {
 protected:
  RecodeTest() : RecodeTest(CodecChoice::kNone) {}
  explicit RecodeTest(CodecChoice codec)
      : PruneTest({.segment_bytes = 768u << 10,
                   .scrub_bytes_per_second = 16u << 20,
                   .recode_after = kAfter,
                   .codec = codec}) {}
  // Advances the time in ticks, and runs the daemon after each.
  void let(std::chrono::milliseconds time) {
    for (; time.count() > 0; time -= kTick) {
      world.tick(kTick);
      world.run();
    }
  }
  void grow_old() { let(kAfter + std::chrono::seconds(5)); }
  uint64_t metric(const std::string& name) {
    const std::string text = world.daemon().metrics_text();
    const size_t at = text.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? 0 : std::stoull(text.substr(at + name.size() + 2));
  }
  uint64_t saved() { return metric("ckptd_recode_saved_bytes_total"); }
  // All answers of queries about the run.
  std::string told(Job& job) {
    std::string all = ask_root("log", R"({"target": "tiny"})").dump();
    for (const ckpt::Step step : job.log(*job.ranks[0])) {
      all += ask_root("show", fmt::format(R"({{"target": "tiny@{}"}})", step)).dump();
    }
    for (const ckpt::UnitSpec& unit : job.model) all += history_of(unit).dump();
    return all;
  }
  Json history_of(const ckpt::UnitSpec& unit) {
    return ask_root("unit", fmt::format(R"({{"target": "tiny", "unit": "{}"}})", unit.name));
  }
  uint64_t stored(Job& job, ckpt::Step step) {
    uint64_t bytes = 0;
    for (const ckpt::UnitSpec& unit : job.model) {
      const Json history = history_of(unit);
      for (const Json& version : history.at("versions")) {
        if (version.at("step") == step) bytes += version.at("stored_bytes").get<uint64_t>();
      }
    }
    return bytes;
  }
};

TEST_F(RecodeTest, WhatIsOldTakesLessAndIsTheSame) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  let(std::chrono::seconds(6));
  job.commit(10);
  let(std::chrono::seconds(3));
  EXPECT_EQ(metric("ckptd_recode_read_bytes_total"), 0u) << "nothing is old enough";
  const uint64_t before = used();
  let(std::chrono::seconds(3));
  EXPECT_LT(stored(job, 5), kModelBytes / 2);
  EXPECT_EQ(stored(job, 10), kModelBytes);
  EXPECT_GT(saved(), kModelBytes / 2);
  EXPECT_LE(used() + saved(), before) << "and what it left is given back";
  const uint64_t written = metric("ckptd_recode_written_bytes_total");
  EXPECT_EQ(metric("ckptd_freed_bytes_total"), saved() + written);
  expect_verified();
  restart();
  expect_view(job, 5, {5, 5, 5, 5});
  expect_view(job, 10, {10, 10, 10, 10});
  grow_old();
  EXPECT_LT(stored(job, 10), kModelBytes / 2);
  EXPECT_EQ(metric("ckptd_recode_errors_total"), 0u);
  // The journal alone gives the same answers.
  job.start(fb::ResumeMode::Latest);
  const std::string all = told(job);
  ask_root("rebuild", "{}");
  EXPECT_EQ(told(job), all);
  world.lose_catalog();
  restart();
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(told(job), all);
  expect_view(job, 5, {5, 5, 5, 5});
  expect_view(job, 10, {10, 10, 10, 10});
  expect_verified();
}

TEST_F(RecodeTest, ALossOfPowerAtAnyMomentCostsNothing) {
  for (int polls = 0; polls < 160; polls += polls < 60 ? 1 : 7) {
    SCOPED_TRACE(polls);
    World own({.seed = static_cast<uint64_t>(polls + 1),
               .segment_bytes = 768u << 10,
               .scrub_bytes_per_second = 16u << 20,
               .recode_after = kAfter});
    ASSERT_TRUE(own.start().ok());
    Job job(own, 1);
    job.start();
    job.commit(5);
    own.tick(kAfter);
    for (int i = 0; i < polls; ++i) {
      own.daemon().poll();
      if (i % 8 == 7) own.tick(kTick);
    }
    polls % 2 == 0 ? own.lose_power() : own.kill_daemon();
    ASSERT_TRUE(own.start().ok());
    for (int again = 0; again < 2; ++again) {
      FakeTrainer reader(own, {});
      ASSERT_TRUE(reader.connect());
      job.expect_restores(reader, 5);
      EXPECT_EQ(reader.query("verify", R"({"target": "tiny"})").exit_code, 0);
      reader.die();
      for (int ticks = 0; ticks < 100; ++ticks) {
        own.tick(kTick);
        own.run();
      }
    }
  }
}

TEST_F(RecodeTest, WhatSomebodyReadsStaysUntilHeIsThrough) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  restart();
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  reader.send(job.whole(5));
  const auto opened = reader.take<fb::RestoreOpenedT>();
  ASSERT_TRUE(opened.has_value());
  const uint64_t before = used();
  let(std::chrono::minutes(10));  // recoding yields to the restore, but not for ever
  EXPECT_GT(saved(), kModelBytes / 2);
  EXPECT_EQ(metric("ckptd_freed_bytes_total"), 0u);
  EXPECT_GE(used(), before);
  uint64_t compared = 0;
  for (bool last = false; !last;) {
    world.run();
    const auto window = reader.take<fb::RestoreWindowT>();
    ASSERT_TRUE(window.has_value()) << reader.error();
    for (const fb::RestoredPiece& piece : window->pieces) {
      const auto bytes = reader.slab(window->slab).subspan(piece.slab_offset(), piece.length());
      for (uint64_t i = 0; i < bytes.size(); ++i) {
        ASSERT_EQ(bytes[i], state_byte(piece.unit(), 5, 0, piece.offset() + i));
      }
      compared += bytes.size();
    }
    last = window->last;
    fb::ReleaseWindowT release;
    release.restore = opened->restore;
    release.slab = window->slab;
    reader.post(std::move(release));
  }
  EXPECT_EQ(compared, kModelBytes);
  reader.die();
  world.run();
  EXPECT_GE(metric("ckptd_freed_bytes_total"), kModelBytes) << "and then it goes";
  expect_view(job, 5, {5, 5, 5, 5});
}

TEST_F(RecodeTest, WhatOthersHaveTooStays) {
  Job job(world, 1);
  job.start();
  for (auto& rank : job.ranks) {  // unit 3 never changes
    rank->byte_at = [](ckpt::UnitId unit, ckpt::Step step, uint64_t, uint64_t offset) {
      return state_byte(unit, unit == 3 ? 5 : step, 0, offset);
    };
  }
  job.commit(5);
  job.commit(10);
  ASSERT_GT(metric("ckptd_same_bytes_total"), 0u);
  const uint64_t before = stored(job, 5);
  grow_old();
  EXPECT_GT(stored(job, 5), before / 2) << "its extents of unit 3 are those of step 10, too";
  EXPECT_GT(saved(), 0u) << "the others are not";
  restart();
  expect_view(job, 5, {5, 5, 5, 5});
  expect_verified();
  // Once unshared, the extents of unit 3 could move; but the commit has had its turn.
  job.start(fb::ResumeMode::Latest);
  ask(job, "prune", kLast1);
  world.run();
  expect_verified();
}

TEST_F(RecodeTest, TheRestOfADeletedCommitIsEncodedToo) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  commit_units(job, 10, {0, 1});
  ask(job, "prune", kLast1);
  world.run();
  expect_view(job, 10, {10, 10, 5, 5});
  const uint64_t before = used();
  grow_old();
  EXPECT_GT(saved(), 0u);
  EXPECT_LE(used() + saved(), before);
  expect_verified();
  expect_view(job, 10, {10, 10, 5, 5});
  const std::string all = told(job);
  ask_root("rebuild", "{}");
  EXPECT_EQ(told(job), all);
  // The rest is reclaimed once no view needs it.
  job.commit(15);
  const uint64_t with_rest = used();
  ask(job, "prune", kLast1);
  world.run();
  EXPECT_LT(used(), with_rest);
  restart();
  expect_view(job, 15, {15, 15, 15, 15});
  expect_verified();
}

TEST_F(RecodeTest, WhatIsDamagedIsLeftAsItIs) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  const auto [path, offset] = fragment_place(world, 5, 2);
  world.disk().flip(path, offset + 11);
  grow_old();
  EXPECT_EQ(metric("ckptd_recode_errors_total"), 1u);
  EXPECT_GT(saved(), 0u) << "the other extents move";
  FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  const auto reply = root.query("verify", "{}");
  EXPECT_EQ(reply.exit_code, 4);
  const Json errors = Json::parse(reply.json).at("errors");
  ASSERT_THAT(errors, SizeIs(1));
  EXPECT_EQ(errors[0].at("unit"), job.model[2].name);
}

// The old extent is reclaimed afterwards, so the new one is read back first.
TEST_F(RecodeTest, WhatWasWrittenBadlyIsNotBelieved) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  let(std::chrono::seconds(5));  // until the scrub pass is done
  MemoryFaults faults;
  faults.path_prefix = "segments/";
  faults.flipped_write = 1;
  world.disk().set_faults(faults);
  grow_old();
  world.disk().set_faults({});
  EXPECT_EQ(saved(), 0u);
  EXPECT_GT(metric("ckptd_recode_errors_total"), 0u);
  restart();
  expect_view(job, 5, {5, 5, 5, 5});
  expect_verified();
}

TEST_F(RecodeTest, WithoutRoomForBothItWaits) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  const uint64_t capacity = world.disk().space().value().total_bytes;
  world.stop();
  ASSERT_TRUE(world.start().ok());
  world.disk().set_capacity(used());
  grow_old();
  EXPECT_GT(metric("ckptd_recode_read_bytes_total"), 0u);
  EXPECT_EQ(metric("ckptd_recode_written_bytes_total"), 0u);
  EXPECT_EQ(metric("ckptd_recode_errors_total"), 0u);
  world.disk().set_capacity(capacity);
  let(std::chrono::seconds(5));
  EXPECT_GT(saved(), kModelBytes / 2);
  restart();
  expect_view(job, 5, {5, 5, 5, 5});
}

TEST_F(RecodeTest, WhatGetsNoSmallerIsReadOnceOnly) {
  Job job(world, 1);
  job.start();
  for (auto& rank : job.ranks) {
    rank->byte_at = [](ckpt::UnitId unit, ckpt::Step step, uint64_t salt, uint64_t offset) {
      return state_byte(unit, step, salt, offset * 64);  // noise
    };
  }
  job.commit(5);
  grow_old();
  EXPECT_GE(metric("ckptd_recode_read_bytes_total"), kModelBytes);
  EXPECT_EQ(saved(), 0u);
  restart();
  grow_old();
  EXPECT_EQ(metric("ckptd_recode_read_bytes_total"), 0u);
}

TEST_F(RecodeTest, ADaemonThatDrainsInTheMiddleOfItClosesCleanly) {
  for (int polls = 0; polls < 40; polls += 3) {
    SCOPED_TRACE(polls);
    Job job(world, 1, {.run = fmt::format("run{}", polls)});
    job.start();
    job.commit(5);
    world.run();
    world.tick(kAfter);
    for (int i = 0; i < polls; ++i) world.daemon().poll();
    world.stop();
    ASSERT_TRUE(world.start().ok());
    FakeTrainer reader(world, {});
    ASSERT_TRUE(reader.connect());
    job.expect_restores(reader, 5);
    reader.die();
  }
  expect_verified();
}

// The catalog proves the loss of durable records, and knows the new places of the bytes.
TEST_F(RecodeTest, MovesThatTheJournalLostArePutBack) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  world.run();
  const FileId file = world.disk().open(kJournalPath, {}).value();
  const auto end =
      scan_journal_file(world.disk(), file, [](uint64_t, const fb::RecordT&) { return Status(); });
  world.disk().close(file);
  grow_old();
  ASSERT_GT(metric("ckptd_freed_bytes_total"), kModelBytes);
  world.kill_daemon();
  const FileId again = world.disk().open(kJournalPath, {}).value();
  ASSERT_TRUE(world.disk().truncate(again, end->end.offset).ok());
  world.disk().close(again);
  ASSERT_TRUE(world.start().ok());
  expect_view(job, 5, {5, 5, 5, 5});
  expect_verified();
  world.lose_catalog();
  restart();
  expect_view(job, 5, {5, 5, 5, 5});
  expect_verified();
}

class RecodeOfEncoded : public RecodeTest {
 protected:
  RecodeOfEncoded() : RecodeTest(CodecChoice::kZstd) {}
};

TEST_F(RecodeOfEncoded, WhatIsEncodedAlreadyIsNotReadAgain) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  grow_old();
  EXPECT_EQ(metric("ckptd_recode_read_bytes_total"), 0u);
}

// A moved extent may become a base afterwards, and a base is not moved.
class RecodeWithDeltas : public RecodeTest {};

TEST_F(RecodeWithDeltas, BasesStayWhereTheyAre) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  grow_old();
  const uint64_t moved = saved();
  ASSERT_GT(moved, 0u);
  world.set_codec(CodecChoice::kDelta);
  restart();
  job.start(fb::ResumeMode::Latest);
  for (auto& rank : job.ranks) {
    rank->byte_at = [](ckpt::UnitId unit, ckpt::Step step, uint64_t salt, uint64_t offset) {
      return state_byte(unit, offset % 61 != 0 ? 5 : step, salt, offset);
    };
  }
  job.commit(10);
  EXPECT_THAT(world.daemon().metrics_text(),
              ::testing::Not(HasSubstr("ckptd_fragment_bytes_total{codec=\"delta\"} 0\n")));
  grow_old();
  expect_verified();
  restart();
  expect_view(job, 5, {5, 5, 5, 5});
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  const auto restored = reader.restore(job.whole(10));
  ASSERT_EQ(restored.error, "");
  for (uint64_t i = 0; i < job.model[3].bytes; ++i) {
    ASSERT_EQ(restored.bytes[3][i], state_byte(3, i % 61 != 0 ? 5 : 10, 0, i));
  }
}

}  // namespace
}  // namespace ckptd::testing
