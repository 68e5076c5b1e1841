// Growths that the daemon refuses, and snapshots that bring one together.

#include "tests/ckptd/daemon/growth_fixture.h"

namespace ckptd::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST_F(GrowthTest, NameKeepsItsSchemaOnEveryLineage) {
  grow_and_commit();
  const auto fork = resumed(fb::ResumeMode::AtStep, 5);
  fork->model = job.model;
  fork->model[kAdapter] = floats("adapter", 77);
  tell(*fork, {fork->model[kAdapter]}, kAdapter);
  EXPECT_THAT(refused(*fork, 10, fork->plan(fork->all_units())),
              HasSubstr("unit adapter: tensor w.adapter: F32 [77] instead of F32 [30000]"));
  tell(*fork, {floats("adapter", 77)}, kRouter);
  EXPECT_THAT(refused(*fork, 11, fork->plan({0})), HasSubstr("F32 [77] instead of F32 [30000]"));
  tell(*fork, {floats("other", 77)}, kAdapter);
  EXPECT_THAT(refused(*fork, 12, fork->plan({0})),
              HasSubstr("unit other: it has number 4 in the growth, which is adapter in the run"));
  EXPECT_EQ(schema().size(), 5u);
}

TEST_F(GrowthTest, BaseUnitsDoNotChange) {
  job.commit(5);
  ckpt::UnitSpec changed = job.model[1];
  changed.bytes += 4;
  tell(job, {changed}, 4);
  EXPECT_THAT(refused(job, 10, job.plan({0})),
              HasSubstr("unit layers.0.experts.0.weights: 20004 bytes instead of 20000"));
  tell(job, {job.model[1]}, 4);
  EXPECT_THAT(refused(job, 11, job.plan({0})), HasSubstr("number 4 in the growth, 1 in the run"));
  tell(job, {floats("far", 10)}, 9);
  EXPECT_THAT(refused(job, 12, job.plan({0})), HasSubstr("but the run has 4 units"));
}

TEST_F(GrowthTest, RankWithAnotherGrowthIsNamed) {
  job.commit(5);
  grow(job, {floats("adapter", 100)});
  job.ranks[1]->grown.clear();
  EXPECT_THAT(refused(job, 10, job.plan(job.all_units())),
              HasSubstr("rank 0 grows the run by unit adapter, rank 1 does not"));
  job.ranks[1]->grown = {floats("adapter", 101)};
  job.ranks[1]->first_grown = kAdapter;
  EXPECT_THAT(refused(job, 11, job.plan(job.all_units())),
              HasSubstr("rank 1 grows the run by unit adapter with tensor w.adapter: F32 [101] "
                        "instead of F32 [100], as rank 0 has it"));
}

TEST_F(GrowthTest, SnapshotMustWriteTheNewUnits) {
  job.commit(5);
  grow(job, {floats("adapter", 100)});
  EXPECT_THAT(refused(job, 10, job.plan({0, 1})),
              HasSubstr("unit adapter is new in the run, so the snapshot must write it"));
  EXPECT_THAT(refused(job, 11, job.plan_in_memory({kAdapter})),
              HasSubstr("unit adapter is new in the run"));
}

TEST_F(GrowthTest, HostileGrowthsAreRefused) {
  job.commit(5);
  tell(job, {floats("a", 1), floats("a", 1)}, 4);
  EXPECT_THAT(refused(job, 10, job.plan({0})), HasSubstr("unit a: the run grows by it twice"));
  tell(job, {floats("a/b", 1)}, 4);
  EXPECT_THAT(refused(job, 11, job.plan({0})), HasSubstr("a unit name is 1 to 255"));
  tell(job, {floats("a", 1)}, ~ckpt::UnitId{0});
  EXPECT_THAT(refused(job, 12, job.plan({0})), HasSubstr("numbers ascend by one"));
  tell(job, {floats("a", 1)}, 4);
  for (auto& rank : job.ranks) rank->grown_flags = 8;
  EXPECT_THAT(refused(job, 13, job.plan({0})), HasSubstr("unit a: flags 0x8"));
  for (auto& rank : job.ranks) rank->grown_flags = 0;
  for (auto& rank : job.ranks) rank->grown_codec = static_cast<fb::UnitCodec>(99);
  EXPECT_THAT(refused(job, 14, job.plan({0})), HasSubstr("unit a: no such codec"));
  std::vector<ckpt::UnitSpec> many;
  for (int i = 0; i < 140'000; ++i) many.push_back(floats(fmt::format("u{}", i), 1));
  for (auto& rank : job.ranks) rank->grown_codec = fb::UnitCodec::Default;
  tell(job, many, 4);
  EXPECT_THAT(refused(job, 15, job.plan({0})), HasSubstr("the most is 131072"));
  tell(job, {}, 0);
  job.commit(20);
  EXPECT_EQ(schema().size(), 4u);
}

TEST_F(GrowthTest, SecondSnapshotCommitsGrowthOfFailedFirst) {
  job.commit(5);
  grow(job, {floats("adapter", 100)});
  job.begin(10);
  job.begin(15);
  job.fill(15);
  abort_snapshot(10);
  job.listen();
  EXPECT_EQ(job.ranks[0]->snapshot(15).level, fb::SnapshotLevel::Durable);
  EXPECT_THAT(shown("tiny@15"), Contains("adapter"));
}

TEST_F(GrowthTest, TwoSnapshotsMayBringTheSameGrowth) {
  job.commit(5);
  grow(job, {floats("adapter", 100)});
  for (const ckpt::Step step : {10, 15}) job.begin(step);
  for (const ckpt::Step step : {10, 15}) job.fill(step);
  world.run();
  job.listen();
  for (const ckpt::Step step : {10, 15}) {
    EXPECT_EQ(job.ranks[0]->snapshot(step).level, fb::SnapshotLevel::Durable);
  }
  EXPECT_EQ(schema().size(), 5u);
  restart();
  EXPECT_EQ(schema().size(), 5u);
}

TEST_F(GrowthTest, OpenSnapshotsMustAgreeAboutNumbers) {
  job.commit(5);
  grow(job, {floats("adapter", 100)});
  job.begin(10);
  tell(job, {floats("router", 100)}, kAdapter);
  EXPECT_THAT(refused(job, 15, job.plan({0, kAdapter})),
              HasSubstr("unit router: step 10 is not committed yet and grows the run, too, and its "
                        "number 4 is adapter there"));
  tell(job, {floats("adapter", 101)}, kAdapter);
  EXPECT_THAT(refused(job, 16, job.plan({0, kAdapter})),
              HasSubstr("it has tensor w.adapter: F32 [100] instead of F32 [101] there"));
  job.fill(10);
  world.run();
  job.listen();
  EXPECT_EQ(job.ranks[0]->snapshot(10).level, fb::SnapshotLevel::Durable);
}

}  // namespace
}  // namespace ckptd::testing
