// The path of a snapshot to its commit, and every way in which it can fail.
#include <gmock/gmock.h>

#include "ckptd/limits.h"
#include "formats/step.h"
#include "tests/ckptd/daemon/held_syncs.h"
#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CommitTest : public ::testing::Test {
 protected:
  CommitTest() : world({}) { EXPECT_TRUE(world.start().ok()); }
  World world;
};

TEST_F(CommitTest, CommitIsReportedToAllRanks) {
  Job job(world, 4);
  job.start();
  job.begin(10);
  for (ckpt::Rank rank = 0; rank < 3; ++rank) ASSERT_TRUE(job.ranks[rank]->fill(10));
  world.run();
  job.listen();
  EXPECT_EQ(job.ranks[0]->snapshot(10).level, fb::SnapshotLevel::Open);
  EXPECT_TRUE(job.log(*job.ranks[0]).empty()) << "nothing half-written is visible";
  ASSERT_TRUE(job.ranks[3]->fill(10));
  job.listen();
  EXPECT_EQ(job.ranks[1]->snapshot(10).level, fb::SnapshotLevel::Staged) << "before any write ends";
  world.run();
  job.listen();
  for (auto& rank : job.ranks) {
    EXPECT_EQ(rank->snapshot(10).level, fb::SnapshotLevel::Durable);
    EXPECT_EQ(rank->error(), "");
  }
  EXPECT_THAT(job.log(*job.ranks[2]), ElementsAre(10));
  job.expect_restores(*job.ranks[2], 10);
}

// On a slow disk a sync takes seconds. The data is not safe before its end.
TEST(CommitTime, IsNotBeforeTheDataWasSynced) {
  World world({});
  HeldSyncs slow(world.disk());
  world.set_door(&slow);
  ASSERT_TRUE(world.start().ok());
  Job job(world, 1);
  job.start();
  job.commit(1);
  slow.hold();
  job.begin(2);
  job.fill(2);
  world.run();
  world.tick(std::chrono::seconds(10));
  slow.release();
  world.run();
  const auto log = nlohmann::json::parse(job.ranks[0]->query("log", R"({"target": "tiny"})").json);
  ASSERT_EQ(log.size(), 2u);
  EXPECT_EQ(log[1]["time"], "2023-11-14T22:13:20.000Z") << log[1];
  EXPECT_EQ(log[0]["time"], "2023-11-14T22:13:30.000Z") << log[0];
  EXPECT_THAT(world.daemon().readiness_answer().text, HasSubstr("step 2 is durable, 0"));
  world.kill_daemon();
}

TEST_F(CommitTest, ManySnapshotsReuseOneArena) {
  Job job(world, 2, {.arena_bytes = 12 * (64u << 10)});
  job.start();
  for (ckpt::Step step = 1; step <= 12; ++step) job.commit(step);
  EXPECT_EQ(job.log(*job.ranks[0]).size(), 12u);
  job.expect_restores(*job.ranks[0], 12);
  job.expect_restores(*job.ranks[1], 3);
}

TEST_F(CommitTest, SnapshotWaitsForSlabsOfEarlierSnapshot) {
  Job job(world, 1, {.arena_bytes = 9 * (64u << 10)});  // 7 slabs for snapshots; each needs 5
  job.start();
  FakeTrainer& trainer = *job.ranks[0];
  job.begin(1);
  ASSERT_TRUE(trainer.fill(1));
  trainer.begin(2, job.plan(job.all_units()));
  EXPECT_FALSE(trainer.fill(2)) << "only two slabs are free";
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("\nckptd_leases_waiting 1\n"));
  world.run();
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("\nckptd_leases_waiting 0\n"));
  EXPECT_TRUE(trainer.fill(2)) << trainer.error();
  world.run();
  trainer.listen();
  EXPECT_EQ(trainer.snapshot(1).level, fb::SnapshotLevel::Durable);
  EXPECT_EQ(trainer.snapshot(2).level, fb::SnapshotLevel::Durable);
}

TEST_F(CommitTest, SkipFailsLoudlyInsteadOfWaiting) {
  Job job(world, 1, {.arena_bytes = 9 * (64u << 10)});
  job.start();
  FakeTrainer& trainer = *job.ranks[0];
  job.begin(1);
  ASSERT_TRUE(trainer.fill(1));
  trainer.begin(2, job.plan(job.all_units()), 0, 0, fb::OutOfSlabs::Skip);
  EXPECT_THAT(trainer.error(), AllOf(HasSubstr("run tiny step 2"), HasSubstr("skipped"),
                                     HasSubstr("earlier snapshots are not written yet")));
  world.run();
  trainer.listen();
  EXPECT_EQ(trainer.snapshot(1).level, fb::SnapshotLevel::Durable);
  job.commit(3);
}

TEST_F(CommitTest, RefusesSnapshotLargerThanArena) {
  Job job(world, 1, {.arena_bytes = 5 * (64u << 10)});
  job.start();
  ckpt::Step step = 1;
  for (const fb::OutOfSlabs policy : {fb::OutOfSlabs::Wait, fb::OutOfSlabs::Skip}) {
    job.ranks[0]->begin(step, job.plan(job.all_units()), 0, 0, policy);
    EXPECT_THAT(job.ranks[0]->error(), AllOf(HasSubstr(fmt::format("step {}", step)),
                                             HasSubstr("open the session with an arena of")));
    ++step;
  }
}

TEST_F(CommitTest, TooManyOpenSnapshotsWaitForTheirTurn) {
  Job job(world, 2);
  job.start();
  const ckpt::Plan plan = job.plan({0});
  const ckpt::Step more = limits::kSnapshotsOpenPerRunMax + 2;
  for (ckpt::Step step = 1; step <= more; ++step) {
    for (auto& rank : job.ranks) rank->begin(step, plan);
  }
  world.run();
  for (ckpt::Step step = 1; step <= more; ++step) {
    for (auto& rank : job.ranks) ASSERT_TRUE(rank->fill(step)) << step << rank->error();
    world.run();
    job.listen();
    EXPECT_EQ(job.ranks[0]->snapshot(step).level, fb::SnapshotLevel::Durable) << step;
  }
}

TEST_F(CommitTest, RanksThatDisagreeOnThePlanAreNamed) {
  Job job(world, 3);
  job.start();
  const ckpt::Plan plan = job.plan(job.all_units());
  ckpt::Plan own = plan;
  own.units.pop_back();
  std::erase_if(own.fragments, [](const auto& fragment) { return fragment.range.unit == 3; });
  job.ranks[0]->begin(5, plan);
  job.ranks[2]->begin(5, own);
  job.ranks[1]->begin(5, plan);
  EXPECT_THAT(job.ranks[1]->error(),
              AllOf(HasSubstr("run tiny step 5"), HasSubstr("rank 2 does not agree")));
  job.listen();
  for (const ckpt::Rank rank : {0, 2}) {
    EXPECT_EQ(job.ranks[rank]->snapshot(5).level, fb::SnapshotLevel::Failed);
    EXPECT_THAT(job.ranks[rank]->snapshot(5).reason, HasSubstr("rank 2 does not agree"));
  }
  job.commit(6);
}

TEST_F(CommitTest, HolesAndOverlapsNameUnitAndRange) {
  Job job(world, 2);
  job.start();
  for (const int64_t shift : {-10, 10}) {
    const ckpt::Step step = shift < 0 ? 1 : 2;
    ckpt::Plan plan = job.plan(job.all_units());
    for (ckpt::PlannedFragment& fragment : plan.fragments) {
      if (fragment.rank != 0 || fragment.range.unit != 1) continue;
      fragment.range.length += static_cast<uint64_t>(shift);
    }
    for (auto& rank : job.ranks) rank->begin(step, plan);
    EXPECT_THAT(job.ranks[1]->error(),
                AllOf(HasSubstr("layers.0.experts.0.weights"), HasSubstr("10000")));
  }
  job.commit(3);
}

TEST_F(CommitTest, MemberLostBeforeSealFailsSnapshot) {
  Job job(world, 3);
  job.start();
  job.begin(5);
  ASSERT_TRUE(job.ranks[0]->fill(5));
  job.ranks[2]->die();
  world.run();
  job.ranks[0]->listen();
  job.ranks[1]->listen();
  EXPECT_EQ(job.ranks[0]->snapshot(5).level, fb::SnapshotLevel::Failed);
  EXPECT_THAT(job.ranks[0]->snapshot(5).reason, HasSubstr("rank 2"));
  ASSERT_TRUE(job.ranks[1]->epoch_ended());
  EXPECT_THAT(job.ranks[1]->ended().lost_ranks, ElementsAre(2));
  job.replace(2);
  job.join(fb::ResumeMode::Continue);
  job.commit(5);
  job.expect_restores(*job.ranks[2], 5);
}

TEST_F(CommitTest, SnapshotSurvivesMemberLostAfterSeal) {
  Job job(world, 3);
  job.start();
  job.begin(5);
  ASSERT_TRUE(job.ranks[2]->fill(5));
  job.ranks[2]->die();
  ASSERT_TRUE(job.ranks[0]->fill(5)) << "the others may still seal into the ended epoch";
  ASSERT_TRUE(job.ranks[1]->fill(5));
  world.run();
  job.ranks[0]->listen();
  EXPECT_TRUE(job.ranks[0]->epoch_ended());
  EXPECT_EQ(job.ranks[0]->snapshot(5).level, fb::SnapshotLevel::Durable);
  job.expect_restores(*job.ranks[1], 5);
}

TEST_F(CommitTest, WriteIntoSealedSlabFailsSnapshot) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  job.fill(5);
  const uint32_t slab = job.ranks[1]->snapshot(5).seals.back().slab;
  job.ranks[1]->slab(slab)[100] ^= std::byte{1};
  world.run();
  job.listen();
  EXPECT_EQ(job.ranks[0]->snapshot(5).level, fb::SnapshotLevel::Failed);
  EXPECT_TRUE(job.log(*job.ranks[0]).empty());
  job.commit(6);
}

TEST_F(CommitTest, DeadlineErrorNamesMissingRanks) {
  Job job(world, 3);
  job.start();
  job.ranks[0]->begin(5, job.plan(job.all_units()));
  job.ranks[1]->begin(5, job.plan(job.all_units()));
  ASSERT_TRUE(job.ranks[0]->fill(5));
  world.run();
  world.tick(std::chrono::milliseconds(60'000));
  job.listen();
  EXPECT_EQ(job.ranks[0]->snapshot(5).level, fb::SnapshotLevel::Failed);
  EXPECT_THAT(job.ranks[0]->snapshot(5).reason,
              AllOf(HasSubstr("rank 2 has not begun"), HasSubstr("rank 1 has not sealed")));
}

TEST_F(CommitTest, StepIsCommittedOncePerLineage) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  job.ranks[0]->begin(5, job.plan(job.all_units()), 0, 1);
  EXPECT_THAT(job.ranks[0]->error(), HasSubstr("has a commit of this step already"));
}

// Every committed step can be listed and found.
TEST_F(CommitTest, LargestStepCommitsAndNextIsRefused) {
  Job job(world, 1);
  job.start();
  for (const ckpt::Step step : {ckpt::Step{0}, ckpt::kStepMax - 1, ckpt::kStepMax}) {
    job.commit(step);
    EXPECT_EQ(job.log(*job.ranks[0]).at(0), step);
    const auto name = nlohmann::json{{"target", fmt::format("tiny@{}", step)}}.dump();
    EXPECT_EQ(job.ranks[0]->query("show", name).exit_code, 0) << name;
  }
  job.ranks[0]->begin(ckpt::kStepMax + 1, job.plan(job.all_units()), 0, 1);
  EXPECT_THAT(job.ranks[0]->error(),
              HasSubstr("a commit's step is a number from 0 to 18446744073709551614"));
}

// The commit record may be durable before a late seal arrives.
TEST(CommitInFlightTest, LateSealDoesNotFailCommit) {
  World world({});
  HeldSyncs slow(world.disk());
  world.set_door(&slow);
  ASSERT_TRUE(world.start().ok());
  Job job(world, 1);
  job.start();
  FakeTrainer& trainer = *job.ranks[0];
  slow.hold();
  job.begin(5);
  fb::LeaseSlabsT lease;
  lease.step = 5;
  lease.count = 1;
  trainer.send(std::move(lease));
  job.fill(5);
  world.run();
  ASSERT_GT(slow.held(), 0u);
  fb::SealSlabT late = trainer.snapshot(5).seals.at(0);
  late.slab = trainer.snapshot(5).slabs.at(0);
  trainer.send(std::move(late));
  EXPECT_THAT(trainer.error(), HasSubstr("all parts are sealed already"));
  slow.release();
  world.run();
  job.listen();
  EXPECT_EQ(trainer.snapshot(5).level, fb::SnapshotLevel::Durable);
  world.stop();
}

TEST_F(CommitTest, AbortIsReportedToOtherRanks) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  fb::AbortSnapshotT abort;
  abort.epoch = job.ranks[0]->epoch().epoch;
  abort.step = 5;
  abort.reason = "NaN in the weights";
  job.ranks[0]->send(std::move(abort));
  job.ranks[1]->listen();
  EXPECT_EQ(job.ranks[1]->snapshot(5).level, fb::SnapshotLevel::Failed);
  EXPECT_THAT(job.ranks[1]->snapshot(5).reason, HasSubstr("NaN in the weights"));
  job.commit(6);
}

TEST_F(CommitTest, FullDiskFailsSnapshotAndKeepsCommits) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  const Disk::Space space = world.disk().space().value();
  world.disk().set_capacity(space.total_bytes - space.free_bytes + (512u << 10));
  // Preallocated space is used up first.
  std::string refusal;
  ckpt::Step step = 6;
  while (refusal.empty() && step < 100) {
    ++step;
    for (auto& rank : job.ranks) rank->begin(step, job.plan(job.all_units()));
    for (auto& rank : job.ranks) refusal += rank->error();
    if (!refusal.empty()) break;
    job.fill(step);
    world.run();
    job.listen();
    // The rest of a segment may be too small for a slab with a space reservation: that fails, too.
    refusal = job.ranks[0]->snapshot(step).reason;
  }
  EXPECT_THAT(refusal, HasSubstr(fmt::format("run tiny step {}", step)));
  world.run();
  world.disk().set_capacity(1ull << 30);
  job.commit(step + 1);
  job.expect_restores(*job.ranks[1], 5);
}

TEST_F(CommitTest, FailedWriteFailsOnlyItsSnapshot) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  job.begin(6);
  MemoryFaults faults;
  faults.path_prefix = "segments/";
  faults.fail_nth_write = 1;
  world.disk().set_faults(faults);
  job.fill(6);
  world.run();
  world.disk().set_faults({});
  job.listen();
  EXPECT_EQ(job.ranks[0]->snapshot(6).level, fb::SnapshotLevel::Failed);
  job.commit(7);
  job.expect_restores(*job.ranks[0], 7);
  job.expect_restores(*job.ranks[0], 5);
}

TEST_F(CommitTest, NaNMetricIsListedAsNull) {
  Job job(world, 1);
  job.start();
  FakeTrainer& trainer = *job.ranks[0];
  trainer.begin(5, job.plan(job.all_units()));
  world.run();
  ASSERT_TRUE(trainer.fill(5));
  world.run();
  // The next snapshot has a loss of NaN.
  fb::BeginSnapshotT nan = trainer.snapshot(5).begin;
  nan.step = 6;
  nan.metrics[0]->value = std::numeric_limits<double>::quiet_NaN();
  trainer.snapshots()[6].begin = nan;
  trainer.send(nan);
  ASSERT_TRUE(trainer.fill(6)) << trainer.error();
  world.run();
  const auto reply = trainer.query("log", R"({"target": "tiny"})");
  EXPECT_EQ(reply.exit_code, 0);
  EXPECT_TRUE(nlohmann::json::parse(reply.json).at(0).at("metrics").at("loss").is_null())
      << reply.json;
}

TEST_F(CommitTest, ClosedJournalIsReportedAndRefusesSnapshots) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  EXPECT_TRUE(world.daemon().readiness_answer().ok);
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("ckptd_journal_open 1"));
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("ckptd_write_errors_total 0"));
  world.disk().set_faults({.path_prefix = "journal/", .fail_nth_sync = 1});
  const auto reply = job.ranks[0]->query("tag", R"({"target": "tiny@5", "tag": "good"})");
  EXPECT_EQ(reply.exit_code, 1);
  EXPECT_THAT(reply.json, HasSubstr("the journal is closed for writing"));
  EXPECT_FALSE(world.daemon().readiness_answer().ok);
  EXPECT_THAT(world.daemon().readiness_answer().text,
              HasSubstr("the journal is closed for writing"));
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("ckptd_journal_open 0"));
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("ckptd_write_errors_total 1"));
  job.begin(10);
  EXPECT_THAT(job.ranks[0]->error(), HasSubstr("the journal is closed")) << "nothing is begun";
}

}  // namespace
}  // namespace ckptd::testing
