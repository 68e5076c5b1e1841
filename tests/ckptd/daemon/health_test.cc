// Degraded states of the daemon: shown to clients, over HTTP, in status and in the metrics, and
// cleared once the cause is gone.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/held_syncs.h"
#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HealthTest : public ::testing::Test {
 protected:
  void start(uint32_t ranks = 1, FakeTrainer::Options trainer = {}) {
    ASSERT_TRUE(world.start().ok());
    job = std::make_unique<Job>(world, ranks, trainer);
    job->start();
  }
  nlohmann::json status() {
    FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
    EXPECT_TRUE(root.connect());
    auto document = nlohmann::json::parse(root.query("status", "{}").json);
    root.die();
    return document;
  }
  // Begins snapshots until the daemon refuses one, and returns its step.
  ckpt::Step fill_up(ckpt::Step step) {
    for (;; ++step) {
      job->begin(step);
      job->listen();
      if (job->ranks[0]->snapshot(step).level == fb::SnapshotLevel::Failed) return step;
      job->fill(step);
      world.run();
      if (step > 100) ADD_FAILURE() << "the disk is never full";
      if (step > 100) return step;
    }
  }

  // The daemon must end before the HeldSyncs that it writes through.
  void TearDown() override {
    if (world.up()) world.kill_daemon();
  }

  World world{{}};
  std::unique_ptr<HeldSyncs> slow;
  std::unique_ptr<Job> job;
};

TEST_F(HealthTest, FullDiskIsNamedWithNumbersAndRemedy) {
  start(2);
  job->commit(5);
  world.disk().set_capacity(8ull << 20);  // less than is used
  const ckpt::Step refused = fill_up(6);
  // Every rank gets the cause, once.
  for (auto& rank : job->ranks) {
    const std::string reason = rank->snapshot(refused).reason;
    EXPECT_THAT(reason, StartsWith(fmt::format(
                            "run tiny step {}: disk full: No space left on device", refused)));
    EXPECT_THAT(reason, AllOf(HasSubstr("needed"), HasSubstr("disk_reserve"), HasSubstr("prune"),
                              HasSubstr("gc")));
    EXPECT_EQ(reason.find("run tiny", 1), std::string::npos) << reason;
  }
  const Daemon::Answer ready = world.daemon().readiness_answer();
  EXPECT_FALSE(ready.ok);
  EXPECT_THAT(ready.text, AllOf(StartsWith("not ready\ndisk_full for "), HasSubstr("prune")));
  const auto first = ready.text.find("No space left on device");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(ready.text.find("No space left on device", first + 1), std::string::npos)
      << "once is enough: " << ready.text;
  const Daemon::Answer health = world.daemon().health_answer();
  EXPECT_TRUE(health.ok) << "a restart would not help";
  EXPECT_THAT(health.text, StartsWith("degraded\ndisk_full for "));
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("ckptd_condition{name=\"disk_full\"} 1\n"));
  const auto document = status();
  EXPECT_EQ(document["can_save"], false);
  ASSERT_FALSE(document["conditions"].empty());
  EXPECT_EQ(document["conditions"][0]["name"], "disk_full");
  EXPECT_THAT(document["conditions"][0]["reason"], StartsWith("disk full: "));
  EXPECT_THAT(document["conditions"][0]["remedy"], HasSubstr("prune"));

  world.disk().set_capacity(1ull << 30);
  EXPECT_TRUE(world.daemon().readiness_answer().ok) << "nobody has to ask for space first";
  EXPECT_THAT(world.daemon().health_answer().text, StartsWith("ok\n"));
  job->commit(refused + 1);
  EXPECT_TRUE(status()["conditions"].empty());
}

// Rank 0's half is refused before rank 1 asks: room for one half does not end the condition.
TEST_F(HealthTest, DiskStaysFullUntilWholeSnapshotFits) {
  constexpr uint64_t kWholeBytes = 16ull << 20;
  ASSERT_TRUE(world.start().ok());
  // The disk must be larger than the snapshot: a larger snapshot proves nothing about free space.
  Job filler(world, 1, {.run = "filler"});
  filler.start();
  for (ckpt::Step step = 1; step <= 60; ++step) filler.commit(step);
  job = std::make_unique<Job>(world, 2);
  job->model.resize(1);
  job->model[0].bytes = kWholeBytes;
  job->model[0].tensors.clear();
  job->start();
  constexpr uint64_t kCapacity = 1ull << 30;
  world.disk().set_capacity(kCapacity);
  const uint64_t used = kCapacity - status()["disk"]["available_bytes"].get<uint64_t>();
  const auto leave_available = [&](uint64_t bytes) { world.disk().set_capacity(used + bytes); };
  leave_available(kWholeBytes / 4);
  fb::BeginSnapshotT begin;
  begin.epoch = job->ranks[0]->epoch().epoch;
  begin.step = 1;
  begin.plan = ckpt::wire::to_fb(plan_hash(job->plan({0})));
  begin.units = {0};
  begin.fragments.emplace_back(0, 0, 0, kWholeBytes / 2);
  begin.slabs_wanted = 1;
  begin.streams = true;
  job->ranks[0]->send(std::move(begin));
  world.run();
  EXPECT_THAT(job->ranks[0]->error(), HasSubstr("disk full: "));
  leave_available(kWholeBytes * 3 / 4);
  EXPECT_FALSE(world.daemon().readiness_answer().ok) << "the next snapshot would fail at once";
  leave_available(kWholeBytes * 5 / 4);
  EXPECT_TRUE(world.daemon().readiness_answer().ok) << world.daemon().readiness_answer().text;
}

// A snapshot that no disk could hold says nothing about the free space of this disk.
TEST_F(HealthTest, SnapshotLargerThanDiskLeavesDaemonReady) {
  constexpr uint64_t kHuge = 64ull << 30;
  ASSERT_TRUE(world.start().ok());
  job = std::make_unique<Job>(world, 1);
  job->model.resize(1);
  job->model[0].bytes = kHuge;
  job->model[0].tensors.clear();
  job->start();
  world.disk().set_capacity(64ull << 20);
  fb::BeginSnapshotT begin;
  begin.epoch = job->ranks[0]->epoch().epoch;
  begin.step = 1;
  begin.plan = ckpt::wire::to_fb(plan_hash(job->plan({0})));
  begin.units = {0};
  begin.fragments.emplace_back(0, 0, 0, kHuge);
  begin.slabs_wanted = 1;
  begin.streams = true;
  job->ranks[0]->send(std::move(begin));
  world.run();
  EXPECT_THAT(job->ranks[0]->error(), HasSubstr("disk full: "));
  EXPECT_TRUE(world.daemon().readiness_answer().ok) << world.daemon().readiness_answer().text;
}

TEST_F(HealthTest, ClosedJournalMakesDaemonUnready) {
  start();
  job->commit(5);
  world.disk().set_faults({.path_prefix = "journal/", .fail_nth_sync = 1});
  job->save(6, job->plan(job->all_units()), fb::SnapshotLevel::Failed);
  const Daemon::Answer ready = world.daemon().readiness_answer();
  EXPECT_FALSE(ready.ok);
  EXPECT_THAT(ready.text, AllOf(StartsWith("not ready\njournal_closed for "),
                                HasSubstr("closed for writing"), HasSubstr("restart ckptd")));
  EXPECT_THAT(ready.text, Not(HasSubstr("draining")));
}

TEST_F(HealthTest, DrainingMakesDaemonUnready) {
  start();
  job->begin(5);
  world.daemon().begin_drain();
  EXPECT_FALSE(world.daemon().readiness_answer().ok);
  EXPECT_THAT(world.daemon().readiness_answer().text, StartsWith("not ready\ndraining: "));
}

TEST_F(HealthTest, LastDurableStepAndAgeAreReported) {
  start();
  EXPECT_EQ(world.daemon().readiness_answer().text,
            "ready\nrun tiny: no step is durable yet, trained\n");
  ASSERT_EQ(status()["durable"].size(), 1u);
  EXPECT_TRUE(status()["durable"][0]["step"].is_null());
  job->commit(5);
  world.tick(seconds(75));
  EXPECT_EQ(world.daemon().readiness_answer().text,
            "ready\nrun tiny: step 5 is durable, 1 min 15 s old, trained\n");
  EXPECT_THAT(world.daemon().metrics_text(),
              AllOf(HasSubstr("ckptd_run_step{run=\"tiny\"} 5\n"),
                    HasSubstr("ckptd_run_durable_age_seconds{run=\"tiny\"} 75\n")));
  const auto durable = status()["durable"];
  ASSERT_EQ(durable.size(), 1u);
  EXPECT_EQ(durable[0]["run"], "tiny");
  EXPECT_EQ(durable[0]["step"], 5);
  EXPECT_EQ(durable[0]["age_seconds"], 75.0);
  EXPECT_EQ(durable[0]["trained"], true);
  // The next daemon reports the same step.
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  EXPECT_THAT(world.daemon().readiness_answer().text, HasSubstr("run tiny: step 5 is durable"));
}

TEST_F(HealthTest, FinishedRunIsUntrainedWithoutLostMembers) {
  start(2);
  job->commit(5);
  const auto trained = [&] { return status()["durable"][0]["trained"].get<bool>(); };
  const auto expect_lost = [&](int members) {
    EXPECT_THAT(world.daemon().metrics_text(),
                HasSubstr(fmt::format("\nckptd_members_lost_total {}\n", members)));
  };
  for (auto& rank : job->ranks) {
    rank->send(fb::LeaveGroupT());
    world.run();
    rank->die();
  }
  world.run();
  EXPECT_FALSE(trained());
  expect_lost(0);
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  world.tick(seconds(1));
  EXPECT_FALSE(trained()) << "the last epoch of the journal may long be over";
  job->start(fb::ResumeMode::Latest);
  EXPECT_TRUE(trained());
  job->ranks[0]->die();
  world.run();
  expect_lost(1);
}

TEST_F(HealthTest, StatusHidesRunsOfOthers) {
  start();
  job->commit(5);
  FakeTrainer other(world, {.uid = 99, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(other.connect());
  const auto document = nlohmann::json::parse(other.query("status", "{}").json);
  EXPECT_TRUE(document["durable"].empty()) << document;
}

// The trainer waits in its client, so no request of it waits in the daemon.
TEST_F(HealthTest, SealedSnapshotBacklogIsReported) {
  slow = std::make_unique<HeldSyncs>(world.disk());
  world.set_door(slow.get());
  start();
  slow->hold();
  for (const ckpt::Step step : {5, 6}) {
    job->begin(step);
    job->fill(step);
    world.run();
    if (step == 5) world.tick(seconds(30));
    EXPECT_EQ(world.daemon().health_answer().text, "ok\n") << "one at a time is no sign";
  }
  world.tick(seconds(3));
  EXPECT_THAT(
      world.daemon().health_answer().text,
      HasSubstr("2 sealed snapshots wait for the disk, the oldest for 33 s; nothing is left "
                "to write, and the disk is still busy; "));
  const auto waiting = status()["durable"][0]["waiting"];
  EXPECT_EQ(waiting["snapshots"], 2);
  EXPECT_EQ(waiting["first_step"], 5);
  EXPECT_EQ(waiting["seconds"], 33.0);
  slow->release();
  world.run();
  world.tick(seconds(1));
  EXPECT_EQ(world.daemon().health_answer().text, "ok\n");
  EXPECT_TRUE(status()["durable"][0]["waiting"].is_null());
}

// A run that saves at every step has the next snapshot sealed before the last one is durable.
TEST_F(HealthTest, FrequentSnapshotsAreNoBacklog) {
  slow = std::make_unique<HeldSyncs>(world.disk());
  world.set_door(slow.get());
  start();
  for (ckpt::Step step = 1; step <= 8; step += 2) {
    slow->hold();
    for (const ckpt::Step next : {step, step + 1}) {
      job->begin(next);
      job->fill(next);
      world.run();
    }
    world.tick(std::chrono::milliseconds(900));
    EXPECT_EQ(world.daemon().health_answer().text, "ok\n") << "step " << step;
    slow->release();
    // The next two snapshots are sealed before health is read again.
    world.run();
    job->listen();
  }
}

TEST_F(HealthTest, AcceptFaultIsReported) {
  start();
  world.daemon().set_accept_fault("accept: Too many open files (raise it with ulimit -n)");
  const Daemon::Answer health = world.daemon().health_answer();
  EXPECT_THAT(health.text, AllOf(StartsWith("degraded\ncannot_accept for "),
                                 HasSubstr("Too many open files"), HasSubstr("restart ckptd")));
  EXPECT_EQ(status()["can_save"], true) << "those that are connected go on";
  EXPECT_FALSE(world.daemon().readiness_answer().ok) << "a trainer that comes now cannot save";
  world.daemon().set_accept_fault("");
  EXPECT_EQ(world.daemon().health_answer().text, "ok\n");
}

// An operator who looks in the morning must see the failure that ended the run at night.
TEST_F(HealthTest, StoreFailureIsReportedUntilRunIsRemoved) {
  start();
  job->commit(4);
  world.disk().set_faults({.path_prefix = "segments/", .fail_nth_write = 1});
  job->save(5, job->plan(job->all_units()), fb::SnapshotLevel::Failed);
  job->ranks[0]->send(fb::LeaveGroupT());
  job->ranks[0]->die();
  world.run();
  world.tick(seconds(1));
  world.tick(std::chrono::hours(8));
  EXPECT_THAT(
      world.daemon().health_answer().text,
      AllOf(StartsWith("degraded\nsnapshots_failing for 8 h"),
            HasSubstr("run tiny: its last snapshot, of step 5, failed; the last durable step is 4"),
            HasSubstr("ckptctl rm")));
  EXPECT_EQ(status()["durable"][0]["failing"]["snapshots"], 1);
  FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  EXPECT_EQ(root.query("rm", R"({"target": "tiny"})").exit_code, 0);
  EXPECT_EQ(world.daemon().health_answer().text, "ok\n");
}

TEST_F(HealthTest, SnapshotFailedByLostRankIsForgotten) {
  start();
  for (const ckpt::Step step : {5, 6}) job->begin(step);
  job->ranks[0]->die();
  world.run();
  EXPECT_EQ(world.daemon().health_answer().text, "ok\n");
  EXPECT_TRUE(status()["durable"].empty());
}

TEST_F(HealthTest, MissedDeadlineIsForgottenWithItsJob) {
  start();
  job->commit(4);
  job->begin(5);
  world.tick(std::chrono::minutes(2));
  const auto failing = status()["durable"][0]["failing"];
  ASSERT_EQ(failing.value("snapshots", 0), 1) << failing;
  EXPECT_THAT(failing.value("reason", ""), HasSubstr("its deadline has passed"));
  job->ranks[0]->send(fb::LeaveGroupT());
  job->ranks[0]->die();
  world.run();
  world.tick(seconds(1));
  EXPECT_EQ(world.daemon().health_answer().text, "ok\n") << "the store did what it should";
}

TEST_F(HealthTest, TrainerWaitForDiskIsReported) {
  slow = std::make_unique<HeldSyncs>(world.disk());
  world.set_door(slow.get());
  start(1, {.arena_bytes = 9 * (64u << 10)});  // one snapshot has most of its slabs
  slow->hold();
  job->begin(5);
  ASSERT_TRUE(job->ranks[0]->fill(5));
  world.run();
  job->begin(6);
  world.tick(seconds(1));
  EXPECT_EQ(world.daemon().health_answer().text, "ok\n") << "a short wait is none";
  world.tick(seconds(3));
  EXPECT_TRUE(world.daemon().readiness_answer().ok);
  EXPECT_THAT(world.daemon().readiness_answer().text, HasSubstr("disk_slow for "));
  slow->release();
  world.run();
  world.tick(seconds(1));
  EXPECT_EQ(world.daemon().health_answer().text, "ok\n");
}

}  // namespace
}  // namespace ckptd::testing
