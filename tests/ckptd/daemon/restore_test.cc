// Restores through the daemon: other layouts, sources, fallback, limits.
#include <gmock/gmock.h>

#include "ckptd/history/recovered_store.h"
#include "ckptd/io/store_paths.h"
#include "ckptd/limits.h"
#include "tests/ckptd/daemon/fragment_place.h"
#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;

class RestoreTest : public ::testing::Test {
 protected:
  RestoreTest() : world({}) { EXPECT_TRUE(world.start().ok()); }
  void forget_memory() {
    world.stop();
    ASSERT_TRUE(world.start().ok());
  }
  World world;
};

TEST_F(RestoreTest, UsesDiskOnceMemoryIsLost) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  auto restored = job.ranks[0]->restore(job.whole(5));
  EXPECT_GT(restored.memory_pieces, 0u);
  EXPECT_EQ(restored.segment_pieces, 0u);
  job.expect_bytes(restored, 5, 0);
  forget_memory();
  job.start(fb::ResumeMode::Latest);
  restored = job.ranks[0]->restore(job.whole(5));
  EXPECT_EQ(restored.memory_pieces, 0u);
  job.expect_bytes(restored, 5, 0);
}

TEST_F(RestoreTest, RestoresIntoOtherRankCount) {
  Job four(world, 4);
  four.start();
  four.commit(5);
  forget_memory();
  Job three(world, 3);
  three.start(fb::ResumeMode::Latest);
  for (ckpt::Rank rank = 0; rank < 3; ++rank) {
    fb::OpenRestoreT request = three.whole(5);
    request.wants.clear();
    for (const ckpt::PlannedFragment& fragment : three.plan(three.all_units()).fragments) {
      if (fragment.rank != rank) continue;
      request.wants.emplace_back(fragment.range.unit, 0, fragment.range.offset,
                                 fragment.range.length);
    }
    const auto restored = three.ranks[rank]->restore(request);
    ASSERT_EQ(restored.error, "");
    for (size_t i = 0; i < request.wants.size(); ++i) {
      const fb::Range& want = request.wants[i];
      for (uint64_t at = 0; at < want.length(); ++at) {
        ASSERT_EQ(restored.bytes[i][at], state_byte(want.unit(), 5, 0, want.offset() + at));
      }
    }
  }
}

TEST_F(RestoreTest, DamageFallsBackToOlderVersionWithNote) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  job.commit(10);
  const auto [path, offset] = fragment_place(world, 10, 2);
  forget_memory();
  world.disk().flip(path, offset + 11);
  job.start(fb::ResumeMode::Latest);
  const auto restored = job.ranks[0]->restore(job.whole(10));
  ASSERT_EQ(restored.error, "");
  EXPECT_EQ(restored.steps[2], 5u);
  EXPECT_EQ(restored.steps[1], 10u);
  EXPECT_THAT(restored.notes[2], HasSubstr("step 5 instead of 10"));
  for (uint64_t i = 0; i < job.model[2].bytes; ++i) {
    ASSERT_EQ(restored.bytes[2][i], state_byte(2, 5, 0, i));
  }
  auto exact = job.whole(10);
  exact.exact = true;
  EXPECT_THAT(job.ranks[1]->restore(exact).error, HasSubstr("layers.0.experts.1.weights"));
  const auto verify = job.ranks[0]->query("verify", R"({"target": "tiny"})");
  EXPECT_EQ(verify.exit_code, 4);
  const auto errors = nlohmann::json::parse(verify.json).at("errors");
  ASSERT_EQ(errors.size(), 1u) << verify.json;
  EXPECT_EQ(errors[0].at("run"), "tiny");
  EXPECT_EQ(errors[0].at("step"), 10);
  EXPECT_EQ(errors[0].at("unit"), "layers.0.experts.1.weights");
}

TEST_F(RestoreTest, ControlSessionRestoresWithArena) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  FakeTrainer control(world, {.kind = fb::SessionKind::Control});
  ASSERT_TRUE(control.connect());
  job.expect_restores(control, 5);
  FakeTrainer bare(world, {.arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(bare.connect());
  EXPECT_THAT(bare.restore(job.whole(5)).error, HasSubstr("needs an arena"));
}

TEST_F(RestoreTest, UnknownTargetsAreNamed) {
  Job job(world, 1);
  job.start();
  FakeTrainer& trainer = *job.ranks[0];
  EXPECT_THAT(trainer.restore(job.whole(5)).error, HasSubstr("step 5"));
  auto latest = job.whole(0);
  latest.latest = true;
  EXPECT_THAT(trainer.restore(latest).error, HasSubstr("no complete view"));
  auto tagged = job.whole(0);
  tagged.tag = "none";
  EXPECT_THAT(trainer.restore(tagged).error, HasSubstr("no tag none"));
  auto other = job.whole(0);
  other.run = "nobody";
  EXPECT_THAT(trainer.restore(other).error, HasSubstr("run nobody: no such run"));
  job.commit(5);
  auto outside = job.whole(5);
  outside.wants = {fb::Range(99, 0, 0, 10)};
  EXPECT_NE(trainer.restore(outside).error, "");
  outside.wants = {fb::Range(1, 0, 0, UINT64_MAX)};
  trainer.send(outside);
  EXPECT_NE(trainer.error(), "");
}

TEST_F(RestoreTest, RestoresOfASessionAreBounded) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  for (size_t i = 0; i < limits::kRestoresPerSessionMax; ++i) {
    job.ranks[0]->send(job.whole(5));
    EXPECT_EQ(job.ranks[0]->error(), "");
  }
  job.ranks[0]->send(job.whole(5));
  EXPECT_THAT(job.ranks[0]->error(), HasSubstr("the most"));
  world.run();
  job.ranks[0]->die();  // with all these restores open
  world.run();
}

TEST_F(RestoreTest, OnlyRootReceivesSegmentFiles) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  forget_memory();
  fb::OpenRestoreT request = job.whole(5);
  request.locate_bytes_max = 1 << 20;
  const auto open = [&](FakeTrainer& reader) {
    EXPECT_TRUE(reader.connect());
    reader.send(request);
    world.run();
    return reader.take<fb::RestoreOpenedT>().value();
  };
  FakeTrainer owner(world, {.kind = fb::SessionKind::Control});
  const fb::RestoreOpenedT refused = open(owner);
  EXPECT_FALSE(refused.locates);
  EXPECT_THAT(refused.not_located, HasSubstr("segments hold state of every run"));
  EXPECT_FALSE(owner.take<fb::LocatedT>().has_value());
  EXPECT_TRUE(owner.take<fb::RestoreWindowT>().has_value()) << "it comes in slabs instead";

  FakeTrainer root(world, {.uid = 0, .kind = fb::SessionKind::Control});
  const fb::RestoreOpenedT opened = open(root);
  EXPECT_TRUE(opened.locates);
  EXPECT_EQ(opened.not_located, "");
  const auto located = root.take<fb::LocatedT>();
  ASSERT_TRUE(located.has_value());
  EXPECT_TRUE(world.inbox(root.session()).arena.valid()) << "the file came along";
  EXPECT_FALSE(root.take<fb::RestoreWindowT>().has_value());
  ASSERT_FALSE(located->fragments.empty());
  // The client's text of a failure reaches notes and logs, so it is escaped and cut.
  fb::LocatedReadT read;
  read.restore = opened.restore;
  read.number = located->number;
  read.failed = {0};
  read.reason = "\x1b[31m" + std::string(10'000, 'A');
  root.post(read);
  world.run();
  const auto window = root.take<fb::RestoreWindowT>();
  ASSERT_TRUE(window.has_value());
  ASSERT_FALSE(window->pieces.empty());
  ASSERT_EQ(window->notes.size(), 1u);
  EXPECT_THAT(window->notes[0]->note,
              HasSubstr("read by ckptd instead of the client: \\x1b[31mAAA"));
  EXPECT_LE(window->notes[0]->note.size(), 500u);
  root.post(read);   // a second time
  read.number = 99;  // a number that was never sent
  root.post(read);
  read.restore = 99;
  root.post(read);
  root.die();
  world.run();
}

// The maximum number of ranges, a unit with a long name, and a damaged slab in memory.
TEST_F(RestoreTest, FallbackNotesOfManyRangesFitOneAnswer) {
  Job job(world, 1);
  job.model.resize(1);
  job.model[0].name = std::string(200, 'n');
  job.model[0].bytes = 40'000;
  job.start();
  job.commit(5);
  FakeTrainer& trainer = *job.ranks[0];
  trainer.slab(trainer.snapshot(5).seals[0].slab)[0] ^= std::byte{1};
  fb::OpenRestoreT request;
  request.run = "tiny";
  request.step = 5;
  request.wants.assign(limits::kWantsPerRestoreMax, fb::Range(0, 0, 0, 1));
  const auto restored = trainer.restore(request);
  ASSERT_EQ(restored.error, "");
  EXPECT_GE(restored.segment_pieces, limits::kWantsPerRestoreMax);
  EXPECT_THAT(restored.notes.front(), HasSubstr("nnn: segment instead of memory"));
  for (size_t i = 1; i < restored.notes.size(); ++i) {
    ASSERT_EQ(restored.notes[i], "as the first range of this unit");
  }
  for (const auto& bytes : restored.bytes) ASSERT_EQ(bytes[0], state_byte(0, 5, 0, 0));
}

// A session opens at once; its slabs are faulted in gradually.
TEST_F(RestoreTest, OpensBeforeArenaIsFaultedIn) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  FakeTrainer reader(world, {.kind = fb::SessionKind::Control, .wait_for_arena = false});
  ASSERT_TRUE(reader.connect());
  reader.send(job.whole(5));
  const auto opened = reader.take<fb::RestoreOpenedT>();
  ASSERT_TRUE(opened.has_value()) << reader.error();
  ASSERT_FALSE(reader.take<fb::RestoreWindowT>().has_value()) << "no slab is warm yet";
  world.run();
  EXPECT_TRUE(reader.take<fb::RestoreWindowT>().has_value());
}

}  // namespace
}  // namespace ckptd::testing
