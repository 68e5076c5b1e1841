// A disk that refuses writes of snapshots, though it has room: the daemon is not ready.
#include <gmock/gmock.h>

#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class FailingWritesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(world.start().ok());
    job = std::make_unique<Job>(world, 1);
    job->start();
  }
  // The disk fails the first write of the snapshot.
  void fail_write(ckpt::Step step) {
    job->begin(step);
    job->listen();  // now there is a segment with room
    world.disk().set_faults({.path_prefix = "segments/", .fail_nth_write = 1});
    job->fill(step);
    world.run();
    job->listen();
    EXPECT_EQ(job->ranks[0]->snapshot(step).level, fb::SnapshotLevel::Failed);
  }
  Daemon::Answer readiness() { return world.daemon().readiness_answer(); }

  World world{{}};
  std::unique_ptr<Job> job;
};

TEST_F(FailingWritesTest, KeepDaemonUnreadyUntilSnapshotIsDurable) {
  job->commit(4);
  for (const ckpt::Step step : {5, 6}) {
    EXPECT_TRUE(readiness().ok) << "one failure may be one lost write";
    fail_write(step);
  }
  EXPECT_FALSE(readiness().ok);
  EXPECT_THAT(readiness().text, AllOf(StartsWith("not ready\nwrites_failing for "),
                                      HasSubstr("writes of snapshots fail: "), HasSubstr("dmesg")));
  job->commit(7);
  EXPECT_TRUE(readiness().ok);
  EXPECT_EQ(world.daemon().health_answer().text, "ok\n");
}

TEST_F(FailingWritesTest, SnapshotsFailedByOneWriteCountOnce) {
  for (const ckpt::Step step : {5, 6}) job->begin(step);
  job->listen();
  world.disk().set_faults({.path_prefix = "segments/", .fail_nth_write = 1});
  for (const ckpt::Step step : {5, 6}) job->fill(step);
  world.run();
  job->listen();
  EXPECT_TRUE(readiness().ok) << readiness().text;
}

TEST_F(FailingWritesTest, LostRankIsNotDiskFailure) {
  job->begin(5);
  job->ranks[0]->die();
  world.run();
  job->start();
  fail_write(6);
  EXPECT_TRUE(readiness().ok);
}

// An orchestrator may start trainers only on a ready daemon, and only a write by a trainer shows
// that the disk works again.
TEST_F(FailingWritesTest, ExpireWithoutActiveTrainers) {
  for (const ckpt::Step step : {5, 6}) {
    fail_write(step);
    EXPECT_EQ(readiness().ok, step == 5);
  }
  world.tick(std::chrono::minutes(16));
  EXPECT_FALSE(readiness().ok) << "its next checkpoint would fail";
  job->ranks[0]->send(fb::LeaveGroupT());
  job->ranks[0]->die();
  world.run();
  world.tick(std::chrono::minutes(16));
  EXPECT_TRUE(readiness().ok);
}

}  // namespace
}  // namespace ckptd::testing
