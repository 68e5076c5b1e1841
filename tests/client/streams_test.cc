// Snapshots that are larger than the arena they go through.
#include <gmock/gmock.h>

#include "tests/client/trainers.h"

namespace ckpt::test {
namespace {

using testing::HasSubstr;

// An arena of eight slabs, some of them for restores, and a state of forty slabs.
SmallRun large_run() {
  SmallRun run;
  run.unit_bytes = {9'000'000, 5, 70'000, 1'000'000};
  run.arena_bytes = 2 << 20;
  run.slab_bytes = 256 << 10;
  return run;
}

client::SnapshotOptions streaming(const SmallRun& run, uint64_t step, uint32_t ranks) {
  client::SnapshotOptions plan = run.plan(step, ranks);
  plan.streams = true;
  return plan;
}

TEST(Streams, ASnapshotMayBeLargerThanTheArena) {
  const SmallRun run = large_run();
  const DaemonProcess daemon;
  run_ranks(2, [&](uint32_t rank) {
    auto session = open_trainer(daemon, run);
    ASSERT_OK(session);
    ASSERT_OK(session->join(as_rank(rank, 2)));
    if (rank == 0) {
      const auto refused = session->begin(run.plan(1, 2));
      ASSERT_FALSE(refused);
      EXPECT_THAT(refused.error().message, HasSubstr("open the session with an arena of"));
    }
    for (uint64_t step = 2; step <= 3; ++step) {
      const auto plan = streaming(run, step, 2);
      auto snapshot = session->begin(plan);
      ASSERT_OK(snapshot);
      ASSERT_OK(write_share(*snapshot, run, plan, rank));
      ASSERT_OK(snapshot->end());
      ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
    }
    expect_state(*session, run, 3);
    expect_state(*session, run, 2);
    ASSERT_OK(session->leave());
  });
}

TEST(Streams, DaemonRestartAbortsStreamedSnapshot) {
  const SmallRun run = large_run();
  DaemonProcess daemon;
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  ASSERT_OK(session->join(as_rank(0, 1)));
  const std::vector<char> bytes = run.state(1, 0);
  {
    auto snapshot = session->begin(streaming(run, 1, 1));
    ASSERT_OK(snapshot);
    ASSERT_OK(snapshot->write(0, 0, bytes.data(), 5'000'000));
    daemon.crash_and_restart();
    const auto written = snapshot->write(0, 5'000'000, bytes.data() + 5'000'000, 4'000'000);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().status, CKPT_E_ABORTED);
    EXPECT_THAT(written.error().message, HasSubstr("slabs of the snapshot had been used"));
  }
  // The trainer goes on with its next snapshot.
  const auto plan = streaming(run, 2, 1);
  auto snapshot = session->begin(plan);
  ASSERT_OK(snapshot);
  ASSERT_OK(write_share(*snapshot, run, plan, 0));
  ASSERT_OK(snapshot->end());
  ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
  expect_state(*session, run, 2);
  ASSERT_OK(session->leave());
}

// The slabs of a snapshot that fits are kept until it is durable, so the next daemon can take it.
TEST(Streams, ShareThatFillsTheArenaSurvivesADaemon) {
  SmallRun run = large_run();
  run.unit_bytes = {1'200'000, 5, 70'000};  // five slabs of the six that snapshots have
  DaemonProcess daemon;
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  ASSERT_OK(session->join(as_rank(0, 1)));
  const std::vector<char> bytes = run.state(1, 0);
  auto snapshot = session->begin(streaming(run, 1, 1));
  ASSERT_OK(snapshot);
  ASSERT_OK(snapshot->write(0, 0, bytes.data(), 900'000));
  daemon.crash_and_restart();
  ASSERT_OK(snapshot->write(0, 900'000, bytes.data() + 900'000, 300'000));
  for (uint32_t unit = 1; unit < 3; ++unit) {
    const std::vector<char> state = run.state(1, unit);
    ASSERT_OK(snapshot->write(unit, 0, state.data(), state.size()));
  }
  ASSERT_OK(snapshot->end());
  ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
  expect_state(*session, run, 1);
  ASSERT_OK(session->leave());
}

}  // namespace
}  // namespace ckpt::test
