// Memory-only units: when they become visible, which failures they survive, when they are evicted.
#include <gmock/gmock.h>

#include <random>

#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::HasSubstr;
using Units = std::vector<ckpt::UnitId>;

class MemoryLevelTest : public ::testing::Test {
 protected:
  MemoryLevelTest() : world({}) { EXPECT_TRUE(world.start().ok()); }

  static ckpt::Plan plan(const Job& job, const Units& durable, const Units& memory) {
    Units all = durable;
    all.insert(all.end(), memory.begin(), memory.end());
    std::sort(all.begin(), all.end());
    ckpt::Plan plan = job.plan(all);
    plan.memory_units = memory;
    return plan;
  }
  void begin(Job& job, ckpt::Step step, const Units& durable, const Units& memory,
             uint32_t attempt = 0) {
    job.begin(step, plan(job, durable, memory), /*salt=*/0, attempt);
  }
  void commit(Job& job, ckpt::Step step, const Units& durable, const Units& memory) {
    job.save(step, plan(job, durable, memory), fb::SnapshotLevel::Durable);
  }
  // Versions in the view of the step. Every byte is compared with the saved state.
  std::vector<ckpt::Step> steps(Job& job, FakeTrainer& trainer, ckpt::Step step, bool memory) {
    fb::OpenRestoreT request = job.whole(step);
    request.memory = memory;
    last_ = trainer.restore(request);
    EXPECT_EQ(last_.error, "");
    if (!last_.error.empty()) return {};
    for (ckpt::UnitId unit = 0; unit < job.model.size(); ++unit) {
      for (uint64_t i = 0; i < job.model[unit].bytes; ++i) {
        if (last_.bytes[unit][i] == state_byte(unit, last_.steps[unit], 0, i)) continue;
        ADD_FAILURE() << job.model[unit].name << " byte " << i;
        break;
      }
    }
    return last_.steps;
  }

  World world;
  FakeTrainer::Restored last_;
};

TEST_F(MemoryLevelTest, IsVisibleOnRequestAfterCommit) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  begin(job, 10, {0, 1}, {2, 3});
  job.fill(10);  // nothing was written yet: the world stands still
  EXPECT_EQ(world.metric("ckptd_memory_versions"), 0);
  world.run();
  job.listen();
  ASSERT_EQ(job.ranks[0]->snapshot(10).level, fb::SnapshotLevel::Durable);
  EXPECT_EQ(world.metric("ckptd_memory_versions"), 2);
  const auto log = nlohmann::json::parse(job.ranks[0]->query("log", R"({"target": "tiny"})").json);
  EXPECT_EQ(log.at(0).at("units"), 2) << "the commit names what is written";
  EXPECT_EQ(log.at(0).at("bytes"), job.model[0].bytes + job.model[1].bytes);

  EXPECT_EQ(steps(job, *job.ranks[0], 10, false), (std::vector<ckpt::Step>{10, 10, 5, 5}));
  EXPECT_EQ(last_.memory_only, (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(steps(job, *job.ranks[1], 10, true), (std::vector<ckpt::Step>{10, 10, 10, 10}));
  EXPECT_EQ(last_.memory_only, (std::vector<bool>{false, false, true, true}));
  EXPECT_EQ(steps(job, *job.ranks[1], 5, true), (std::vector<ckpt::Step>{5, 5, 5, 5}));

  const auto shown = job.ranks[0]->query("show", R"({"target": "tiny@10", "memory": true})");
  const auto units = nlohmann::json::parse(shown.json).at("units");
  EXPECT_EQ(units.at(2).at("version_step"), 10);
  EXPECT_EQ(units.at(2).at("level"), "staged");
  EXPECT_EQ(units.at(1).at("level"), "durable");
  const auto durable = job.ranks[0]->query("show", R"({"target": "tiny@10"})");
  EXPECT_EQ(nlohmann::json::parse(durable.json).at("units").at(2).at("version_step"), 5);
}

TEST_F(MemoryLevelTest, SurvivesTrainersButNotDaemon) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  commit(job, 10, {0, 1}, {2});
  commit(job, 15, {0, 2}, {3, 1});
  for (auto& rank : job.ranks) rank->die();
  world.run();
  job.start(fb::ResumeMode::Continue);
  EXPECT_EQ(job.ranks[0]->epoch().resume_step, 15u);
  for (auto& rank : job.ranks) {
    EXPECT_EQ(steps(job, *rank, 15, true), (std::vector<ckpt::Step>{15, 15, 15, 15}));
    EXPECT_EQ(last_.memory_only, (std::vector<bool>{false, true, false, true}));
  }
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  job.start(fb::ResumeMode::Latest);
  EXPECT_EQ(steps(job, *job.ranks[0], 15, true), (std::vector<ckpt::Step>{15, 10, 15, 5}));
  EXPECT_EQ(world.metric("ckptd_memory_versions"), 0);
}

TEST_F(MemoryLevelTest, NewerVersionOfEitherLevelFreesSlabs) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  commit(job, 10, {0}, {1, 2, 3});
  const double held = world.metric("ckptd_slabs{state=\"held\"}");
  EXPECT_GT(held, 0);
  commit(job, 15, {0}, {1, 2, 3});
  EXPECT_EQ(world.metric("ckptd_slabs{state=\"held\"}"), held);
  EXPECT_EQ(steps(job, *job.ranks[0], 15, true), (std::vector<ckpt::Step>{15, 15, 15, 15}));
  // The older version is gone, so a view of an older step shows the version on disk.
  EXPECT_EQ(steps(job, *job.ranks[0], 10, true), (std::vector<ckpt::Step>{10, 5, 5, 5}));
  commit(job, 20, {0, 1, 2, 3}, {});
  EXPECT_EQ(world.metric("ckptd_slabs{state=\"held\"}"), 0);
  EXPECT_EQ(world.metric("ckptd_memory_evictions_total"), 0);
}

TEST_F(MemoryLevelTest, LineageResumedEarlierDropsMemoryVersions) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  job.commit(8);
  commit(job, 10, {0}, {1, 2});
  job.ranks[0]->die();
  world.run();
  job.start(fb::ResumeMode::AtStep, 8);
  EXPECT_EQ(world.metric("ckptd_memory_versions"), 0);
  commit(job, 12, {0}, {3});
  EXPECT_EQ(steps(job, *job.ranks[0], 12, true), (std::vector<ckpt::Step>{12, 8, 8, 12}));
}

TEST_F(MemoryLevelTest, IsEvictedOldestFirst) {
  FakeTrainer::Options options;
  options.arena_bytes = 640 << 10;  // 8 slabs for snapshots; a full one takes 6
  Job job(world, 1, options);
  job.start();
  job.commit(5);
  commit(job, 10, {0}, {1});
  commit(job, 15, {0}, {2});
  commit(job, 20, {0, 3}, {});  // a large unit: needs more slabs than are free
  EXPECT_EQ(steps(job, *job.ranks[0], 20, true)[2], 15u);
  job.begin(25);  // takes all slabs at once
  EXPECT_EQ(job.ranks[0]->error(), "");
  job.fill(25);
  world.run();
  job.listen();
  EXPECT_EQ(job.ranks[0]->snapshot(25).level, fb::SnapshotLevel::Durable);
}

// A snapshot with the policy Skip is never skipped for slabs that the memory level holds.
TEST_F(MemoryLevelTest, NeverMakesASnapshotSkip) {
  FakeTrainer::Options options;
  options.arena_bytes = 640 << 10;
  Job job(world, 1, options);
  job.start();
  job.commit(5);
  commit(job, 10, {0}, {1, 2});
  job.ranks[0]->die();
  world.run();
  job.start(fb::ResumeMode::Continue);
  for (ckpt::Step step = 15; step <= 40; step += 5) {
    job.ranks[0]->begin(step, plan(job, {0}, {1, 2, 3}), 0, 0, fb::OutOfSlabs::Skip);
    world.run();
    ASSERT_EQ(job.ranks[0]->error(), "");
    job.fill(step);
    world.run();
    job.listen();
    ASSERT_EQ(job.ranks[0]->snapshot(step).level, fb::SnapshotLevel::Durable);
  }
  EXPECT_EQ(world.metric("ckptd_snapshots_skipped_total"), 0);
}

// Versions that an epoch resumed from stay until each rank has begun a snapshot: all find the same.
TEST_F(MemoryLevelTest, AllRanksOfEpochRestoreSameVersions) {
  FakeTrainer::Options options;
  options.arena_bytes = 640 << 10;
  Job job(world, 2, options);
  job.start();
  job.commit(5);
  commit(job, 10, {0}, {1, 2, 3});
  for (auto& rank : job.ranks) rank->die();
  world.run();
  job.start(fb::ResumeMode::Continue);
  const std::vector<ckpt::Step> expected = {10, 10, 10, 10};
  EXPECT_EQ(steps(job, *job.ranks[0], 10, true), expected);
  job.ranks[0]->begin(15, job.plan(job.all_units()));  // rank 0 continues; rank 1 still restores
  world.run();
  EXPECT_EQ(steps(job, *job.ranks[1], 10, true), expected);
}

TEST_F(MemoryLevelTest, SlabChangedAfterSealFailsSnapshot) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  begin(job, 10, {0}, {1});
  auto& snapshot = job.ranks[0]->snapshot(10);
  job.ranks[0]->listen();
  const std::vector<uint32_t> slabs = snapshot.slabs;
  ASSERT_EQ(slabs.size(), 2u);
  job.fill(10);
  job.ranks[0]->slab(slabs[1])[100] ^= std::byte{1};  // the second slab stays in memory
  world.run();
  job.listen();
  EXPECT_EQ(snapshot.level, fb::SnapshotLevel::Failed);
  EXPECT_THAT(snapshot.reason, HasSubstr("CRC32C"));
  EXPECT_EQ(world.metric("ckptd_memory_versions"), 0);
  EXPECT_EQ(steps(job, *job.ranks[0], 5, true), (std::vector<ckpt::Step>{5, 5, 5, 5}));
}

TEST_F(MemoryLevelTest, SlabChangedAfterCommitFallsBackToDisk) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  begin(job, 10, {0}, {1});
  job.ranks[0]->listen();
  const uint32_t kept = job.ranks[0]->snapshot(10).slabs.at(1);
  job.fill(10);
  world.run();
  job.ranks[0]->slab(kept)[100] ^= std::byte{1};
  EXPECT_EQ(steps(job, *job.ranks[0], 10, true), (std::vector<ckpt::Step>{10, 5, 5, 5}));
  EXPECT_THAT(last_.notes[1], HasSubstr("step 5 instead of 10: memory: CRC32C mismatch"));
  EXPECT_FALSE(last_.memory_only[1]);
}

TEST_F(MemoryLevelTest, RefusesInvalidPlans) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  const std::vector<std::pair<Units, std::string>> wrong = {
      {{0, 1}, "none would be durable"}, {{1, 1}, "names a unit twice"}, {{7}, "does not hold"}};
  ckpt::Step step = 10;
  for (const auto& [memory, why] : wrong) {
    ckpt::Plan bad = job.plan({0, 1});
    bad.memory_units = memory;
    job.ranks[0]->begin(++step, bad);
    world.run();
    EXPECT_THAT(job.ranks[0]->error(), HasSubstr(why));
  }
  // One slab with both kinds of units: the seal is refused, and none of its units is visible.
  begin(job, 20, {0}, {1});
  job.ranks[0]->listen();
  auto& snapshot = job.ranks[0]->snapshot(20);
  snapshot.begin.memory_units.clear();  // packs as if all units were durable
  job.ranks[0]->fill(20);
  world.run();
  EXPECT_THAT(job.ranks[0]->error(), HasSubstr("lie in one slab"));
  EXPECT_EQ(world.metric("ckptd_memory_versions"), 0);
}

TEST_F(MemoryLevelTest, RanksThatDisagreeAboutTheLevelAreNamed) {
  Job job(world, 3);
  job.start();
  job.commit(5);
  for (size_t rank = 0; rank < 3; ++rank) {
    job.ranks[rank]->begin(10, rank == 1 ? plan(job, {0, 1}, {2}) : plan(job, {0}, {1, 2}));
  }
  world.run();
  job.listen();
  EXPECT_EQ(job.ranks[0]->snapshot(10).level, fb::SnapshotLevel::Failed);
  EXPECT_THAT(job.ranks[0]->snapshot(10).reason, HasSubstr("rank 1 does not agree"));
}

TEST_F(MemoryLevelTest, NewestNeedsNoCommitAtTheStep) {
  Job job(world, 1);
  job.start();
  commit(job, 5, {0, 1, 2}, {});  // unit 3 has no version at all
  commit(job, 10, {0}, {1});
  fb::OpenRestoreT request = job.whole(13);
  request.wants.pop_back();
  EXPECT_THAT(job.ranks[0]->restore(request).error, HasSubstr("no commit at this step"));
  request.newest = true;
  EXPECT_EQ(job.ranks[0]->restore(request).steps, (std::vector<ckpt::Step>{10, 5, 5}));
  request.memory = true;
  EXPECT_EQ(job.ranks[0]->restore(request).steps, (std::vector<ckpt::Step>{10, 10, 5}));
  request.latest = true;
  EXPECT_THAT(job.ranks[0]->restore(request).error, HasSubstr("`newest` goes with a step"));
}

// A restore, a snapshot that is being filled and a snapshot that is being written, all at once:
// none of them waits for another.
TEST_F(MemoryLevelTest, RestoreFillAndPersistRunConcurrently) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  commit(job, 10, {0}, {1, 2, 3});
  begin(job, 15, {0, 1}, {2, 3});
  job.fill(15);  // sealed; the world has not run yet, so step 15 is still being written
  FakeTrainer& trainer = *job.ranks[0];
  fb::OpenRestoreT request = job.whole(10);
  request.memory = true;
  trainer.send(request);
  trainer.begin(20, plan(job, {0, 2}, {1, 3}));
  trainer.listen();
  EXPECT_EQ(trainer.snapshot(15).level, fb::SnapshotLevel::Staged) << "not written yet";
  EXPECT_EQ(trainer.snapshot(20).slabs.size(), trainer.snapshot(20).begin.slabs_wanted)
      << "leased at once";
  ASSERT_TRUE(trainer.fill(20));
  const auto opened = trainer.take<fb::RestoreOpenedT>();
  ASSERT_TRUE(opened.has_value()) << trainer.error();
  EXPECT_TRUE(opened->units[1]->memory_only) << "planned while all this was in flight";
  world.run();
  EXPECT_TRUE(trainer.take<fb::RestoreWindowT>().has_value());
  trainer.listen();
  EXPECT_EQ(trainer.snapshot(15).level, fb::SnapshotLevel::Durable);
  EXPECT_EQ(trainer.snapshot(20).level, fb::SnapshotLevel::Durable);
}

std::pair<Units, Units> draw_units(std::mt19937& random, bool all_durable) {
  std::pair<Units, Units> units{{0}, {}};
  for (ckpt::UnitId unit = 1; unit < 4; ++unit) {
    const uint32_t draw = all_durable ? 0 : random() % 3;
    if (draw == 0) units.first.push_back(unit);
    if (draw == 1) units.second.push_back(unit);
  }
  return units;
}

// Random histories of snapshots, deaths and resumes, against a model without slabs. Nothing is
// evicted here, so every view must follow the rules exactly.
TEST_F(MemoryLevelTest, ViewsMatchModelAfterRandomHistory) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    World other({.seed = seed + 1});
    ASSERT_TRUE(other.start().ok());
    std::mt19937 random(seed);
    Job job(other, 1 + seed % 2, {.arena_bytes = 8 << 20});
    job.start();
    std::vector<ckpt::Step> disk(4), memory(4);  // the newest step of each unit; 0: none
    ckpt::Step step = 0;
    ckpt::Step newest = 0;
    for (int event = 0; event < 30; ++event) {
      if (random() % 4 == 0 && newest > 0) {
        for (auto& rank : job.ranks) rank->die();
        other.run();
        if (random() % 3 == 0) {
          other.kill_daemon();
          ASSERT_TRUE(other.start().ok());
          memory.assign(4, 0);
        }
        job.start(fb::ResumeMode::Continue);
        step = newest;
        fb::OpenRestoreT request = job.whole(newest);
        request.memory = true;
        const auto restored = job.ranks[0]->restore(request);
        ASSERT_EQ(restored.error, "");
        for (ckpt::UnitId unit = 0; unit < 4; ++unit) {
          EXPECT_EQ(restored.steps[unit], std::max(disk[unit], memory[unit])) << "unit " << unit;
          EXPECT_EQ(restored.memory_only[unit], memory[unit] > disk[unit]) << "unit " << unit;
        }
        continue;
      }
      ++step;
      const auto [durable, kept] = draw_units(random, newest == 0);
      const bool fails = newest > 0 && random() % 5 == 0;
      job.begin(step, plan(job, durable, kept));
      if (fails) {
        fb::AbortSnapshotT abort;
        abort.epoch = job.ranks[0]->epoch().epoch;
        abort.step = step;
        abort.reason = "drawn";
        job.ranks[0]->send(std::move(abort));
        other.run();
        job.listen();
        continue;
      }
      job.fill(step);
      other.run();
      job.listen();
      ASSERT_EQ(job.ranks[0]->snapshot(step).level, fb::SnapshotLevel::Durable);
      newest = step;
      for (const ckpt::UnitId unit : durable) disk[unit] = step;
      for (const ckpt::UnitId unit : kept) memory[unit] = step;
    }
  }
}

}  // namespace
}  // namespace ckptd::testing
