// The daemon restarts under a running job: epochs, arenas and open snapshots are handed back.
#include <gmock/gmock.h>

#include "ckptd/limits.h"
#include "formats/wire/frame.h"
#include "tests/ckptd/daemon/job.h"

namespace ckptd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HandbackTest : public ::testing::Test {
 protected:
  HandbackTest() : world({}) { EXPECT_TRUE(world.start().ok()); }
  void restart(Job& job) {
    world.kill_daemon();
    ASSERT_TRUE(world.start().ok());
    for (auto& rank : job.ranks) ASSERT_TRUE(rank->reconnect()) << rank->error();
    world.run();
    job.listen();
  }
  // Commits step 5; then all ranks leave the group.
  static void train_and_leave(Job& job) {
    job.start();
    job.commit(5);
    for (auto& rank : job.ranks) {
      rank->send(fb::LeaveGroupT());
      rank->die();
    }
  }
  World world;
};

TEST_F(HandbackTest, MembersStayInTheirEpoch) {
  Job job(world, 3);
  job.start();
  job.commit(5);
  restart(job);
  job.commit(6);
  EXPECT_FALSE(job.ranks[0]->epoch_ended());
  EXPECT_THAT(job.log(*job.ranks[1]), ElementsAre(6, 5));
  job.expect_restores(*job.ranks[2], 6);
}

TEST_F(HandbackTest, RestartedDaemonCommitsSealedSnapshot) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  job.fill(5);
  restart(job);
  for (auto& rank : job.ranks) {
    EXPECT_EQ(rank->snapshot(5).level, fb::SnapshotLevel::Durable)
        << rank->snapshot(5).reason << rank->error();
  }
  job.expect_restores(*job.ranks[0], 5);
}

TEST_F(HandbackTest, HalfFilledSnapshotContinues) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  ASSERT_TRUE(job.ranks[0]->fill(5));
  job.ranks[1]->listen();  // has its slabs, has filled none
  restart(job);
  EXPECT_EQ(job.ranks[0]->snapshot(5).level, fb::SnapshotLevel::Open);
  ASSERT_TRUE(job.ranks[1]->fill(5)) << job.ranks[1]->error();
  world.run();
  job.listen();
  EXPECT_EQ(job.ranks[0]->snapshot(5).level, fb::SnapshotLevel::Durable);
  job.expect_restores(*job.ranks[0], 5);
  for (ckpt::Step step = 6; step < 12; ++step) job.commit(step);
}

TEST_F(HandbackTest, UnreportedCommitIsNotRepeated) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  job.fill(5);
  world.run();  // durable, and the messages lie unread
  for (auto& rank : job.ranks) rank->snapshot(5).level = fb::SnapshotLevel::Open;
  restart(job);
  for (auto& rank : job.ranks) {
    EXPECT_EQ(rank->snapshot(5).level, fb::SnapshotLevel::Durable);
  }
  EXPECT_THAT(job.log(*job.ranks[0]), ElementsAre(5));
  for (ckpt::Step step = 6; step < 12; ++step) job.commit(step);
}

TEST_F(HandbackTest, SlabChangedDuringRestartFailsSnapshot) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  job.fill(5);
  world.kill_daemon();
  job.ranks[0]->slab(job.ranks[0]->snapshot(5).seals[0].slab)[7] ^= std::byte{8};
  ASSERT_TRUE(world.start().ok());
  for (auto& rank : job.ranks) ASSERT_TRUE(rank->reconnect());
  world.run();
  job.listen();
  // Found before rank 1 was back: it learns of it when it reopens the snapshot.
  EXPECT_EQ(job.ranks[0]->snapshot(5).level, fb::SnapshotLevel::Failed);
  EXPECT_NE(job.ranks[1]->error(), "");
  EXPECT_TRUE(job.log(*job.ranks[1]).empty());
  job.commit(6);
}

TEST_F(HandbackTest, MembersThatDoNotReconnectAreLost) {
  Job job(world, 3);
  job.start();
  job.begin(5);
  job.fill(5);
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  ASSERT_TRUE(job.ranks[0]->reconnect());
  ASSERT_TRUE(job.ranks[1]->reconnect());
  world.run();
  world.tick(limits::kReopenDeadline);
  job.ranks[0]->listen();
  ASSERT_TRUE(job.ranks[0]->epoch_ended());
  EXPECT_THAT(job.ranks[0]->ended().lost_ranks, ElementsAre(2));
  EXPECT_EQ(job.ranks[0]->snapshot(5).level, fb::SnapshotLevel::Failed);
  job.replace(2);
  job.join(fb::ResumeMode::Continue);
  job.commit(5);
}

TEST_F(HandbackTest, ReplacedMemberEndsEpochAtOnce) {
  Job job(world, 2);
  job.start();
  job.commit(5);
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  ASSERT_TRUE(job.ranks[0]->reconnect());
  job.replace(1);
  job.ranks[1]->join(1, 2, fb::ResumeMode::Continue);
  world.run();
  job.ranks[0]->listen();
  ASSERT_TRUE(job.ranks[0]->epoch_ended());
  job.ranks[0]->join(0, 2, fb::ResumeMode::Continue);
  world.run();
  ASSERT_TRUE(job.ranks[0]->started());
  ASSERT_TRUE(job.ranks[1]->started());
  EXPECT_EQ(job.ranks[1]->epoch().resume_step, 5u);
}

TEST_F(HandbackTest, InvalidArenaDescriptorIsReplaced) {
  Job job(world, 1);
  job.start();
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  const ckpt::SessionId session = world.connect();
  fb::HelloT hello;
  hello.protocol_version = ckpt::wire::kProtocolVersion;
  hello.kind = fb::SessionKind::Trainer;
  hello.run = "tiny";
  hello.arena_bytes = 1u << 20;
  hello.slab_bytes = 64u << 10;
  hello.readopt = true;
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const ckpt::base::UniqueFd other_end(pipe_ends[1]);
  fb::MessageT message;
  message.body.Set(std::move(hello));
  world.deliver(session, std::move(message), ckpt::base::UniqueFd(pipe_ends[0]));
  ASSERT_FALSE(world.inbox(session).messages.empty());
  const auto* welcome = world.inbox(session).messages.front().body.AsWelcome();
  ASSERT_NE(welcome, nullptr);
  EXPECT_FALSE(welcome->adopted);
  EXPECT_TRUE(world.inbox(session).arena.valid());
}

// `rm` and `import` ask whether a run is in use, also right after a restart.
TEST_F(HandbackTest, LeftRunIsRemovableAfterCleanStop) {
  Job left(world, 2);
  train_and_leave(left);
  Job going(world, 2, {.run = "going"});
  going.start();
  going.commit(5);
  world.stop();
  ASSERT_TRUE(world.start().ok());
  FakeTrainer user(world, {.arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(user.connect());
  const auto removed = user.query("rm", R"({"target": "tiny"})");
  EXPECT_EQ(removed.exit_code, 0) << removed.json;
  EXPECT_THAT(user.query("rm", R"({"target": "going"})").json, HasSubstr("to rejoin"));
  for (auto& rank : going.ranks) ASSERT_TRUE(rank->reconnect()) << rank->error();
  world.run();
  going.listen();
  going.commit(6);
}

// The journal records that the ranks left, so `rm` need not wait. `status` and `rm` agree.
TEST_F(HandbackTest, LeftRunIsRemovableAfterCrash) {
  Job left(world, 2);
  train_and_leave(left);
  Job going(world, 2, {.run = "going"});
  going.start();
  going.commit(5);
  world.run();
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  FakeTrainer user(world, {.arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(user.connect());
  const auto awaited = [&](const std::string& run) {
    const auto document = nlohmann::json::parse(user.query("status", "{}").json);
    for (const auto& row : document["durable"]) {
      if (row["run"] == run) return row["awaited"].get<bool>();
    }
    ADD_FAILURE() << "status does not list " << run;
    return false;
  };
  EXPECT_FALSE(awaited("tiny"));
  EXPECT_TRUE(awaited("going"));
  EXPECT_THAT(user.query("rm", R"({"target": "going"})").json, HasSubstr("to rejoin"));
  const auto removed = user.query("rm", R"({"target": "tiny"})");
  EXPECT_EQ(removed.exit_code, 0) << removed.json;
  for (auto& rank : going.ranks) ASSERT_TRUE(rank->reconnect()) << rank->error();
  world.run();
  EXPECT_FALSE(awaited("going")) << "it is trained";
}

// The recorded end of one epoch does not end the next epoch.
TEST_F(HandbackTest, RanksOfResumedRunReconnectAfterCrash) {
  Job job(world, 1);
  job.start();
  job.commit(5);
  job.ranks[0]->send(fb::LeaveGroupT());
  job.ranks[0]->die();
  world.run();
  job.start(fb::ResumeMode::Latest);
  job.commit(6);
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  ASSERT_TRUE(job.ranks[0]->reconnect()) << job.ranks[0]->error();
  world.run();
  job.listen();
  job.commit(7);
}

TEST_F(HandbackTest, DrainHandsOverHalfFilledSnapshots) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  ASSERT_TRUE(job.ranks[0]->fill(5));
  job.ranks[1]->listen();
  world.stop();
  ASSERT_TRUE(world.start().ok());
  for (auto& rank : job.ranks) ASSERT_TRUE(rank->reconnect());
  ASSERT_TRUE(job.ranks[1]->fill(5)) << job.ranks[1]->error();
  world.run();
  job.listen();
  EXPECT_EQ(job.ranks[1]->snapshot(5).level, fb::SnapshotLevel::Durable);
  job.expect_restores(*job.ranks[0], 5);
}

class ClaimTest : public HandbackTest {
 protected:
  // A rank has begun two snapshots and sealed nothing. Tests change the slabs that it will claim.
  ClaimTest() : job(world, 1) {
    job.start();
    job.begin(5);
    job.begin(6);
    job.listen();
  }
  FakeTrainer& trainer() { return *job.ranks[0]; }
  fb::SealSlabT seal_of(uint32_t slab) {
    fb::SealSlabT seal;
    seal.epoch = trainer().epoch().epoch;
    seal.step = 6;
    seal.slab = slab;
    seal.payload_bytes = 1000;
    seal.fragments.emplace_back(0, 0, 0, 1000, 0);
    return seal;
  }
  void abort(ckpt::Step step) {
    fb::AbortSnapshotT message;
    message.epoch = trainer().epoch().epoch;
    message.step = step;
    trainer().send(std::move(message));
    world.run();
  }
  // The second snapshot has failed; the first is unchanged.
  void expect_only_first_commits() {
    EXPECT_EQ(trainer().snapshot(6).level, fb::SnapshotLevel::Failed);
    EXPECT_EQ(trainer().snapshot(5).level, fb::SnapshotLevel::Open);
    ASSERT_TRUE(trainer().fill(5));
    world.run();
    job.listen();
    EXPECT_EQ(trainer().snapshot(5).level, fb::SnapshotLevel::Durable);
    for (ckpt::Step step = 7; step < 15; ++step) job.commit(step);
  }
  Job job;
};

TEST_F(ClaimTest, TwoSnapshotsCannotHoldOneSlab) {
  trainer().snapshot(6).slabs = trainer().snapshot(5).slabs;
  restart(job);
  EXPECT_THAT(trainer().error(), HasSubstr("claimed twice"));
  expect_only_first_commits();
}

TEST_F(ClaimTest, AbortsReleaseDoublyClaimedSlabsOnce) {
  trainer().snapshot(6).slabs = trainer().snapshot(5).slabs;
  restart(job);
  abort(5);
  abort(6);
  for (ckpt::Step step = 7; step < 15; ++step) job.commit(step);
}

TEST_F(ClaimTest, SealCannotClaimOtherSnapshotsSlab) {
  trainer().snapshot(6).slabs.clear();
  trainer().snapshot(6).seals = {seal_of(trainer().snapshot(5).slabs.front())};
  restart(job);
  EXPECT_THAT(trainer().error(), HasSubstr("claimed twice"));
  expect_only_first_commits();
}

TEST_F(ClaimTest, SlabsReservedForRestoresHoldNoSnapshot) {
  trainer().snapshot(6).slabs.clear();
  trainer().snapshot(6).seals = {seal_of(0)};
  restart(job);
  EXPECT_THAT(trainer().error(), HasSubstr("slab 0 is not leased"));
  expect_only_first_commits();
}

TEST_F(HandbackTest, SnapshotOfEndedEpochIsNotReopened) {
  Job job(world, 2);
  job.start();
  job.begin(5);
  job.listen();
  auto reopen = fb::ReopenSnapshotT();
  reopen.begin = std::make_unique<fb::BeginSnapshotT>(job.ranks[0]->snapshot(5).begin);
  job.ranks[0]->snapshots().clear();  // rejoins without the snapshot, and reopens it later
  job.ranks[1]->snapshots().clear();
  restart(job);
  job.ranks[1]->die();
  world.run();
  job.listen();
  ASSERT_TRUE(job.ranks[0]->epoch_ended());
  job.ranks[0]->send(std::move(reopen));
  EXPECT_THAT(job.ranks[0]->error(), HasSubstr("step 5: epoch 1 has ended"));
  job.replace(1);
  job.join(fb::ResumeMode::Continue);
  job.commit(5);
}

TEST_F(HandbackTest, ReconnectDeadlineExcludesRecoveryTime) {
  Job job(world, 2);
  job.start();
  world.kill_daemon();
  ASSERT_TRUE(world.start(2 * limits::kReopenDeadline).ok());
  ASSERT_TRUE(job.ranks[0]->reconnect());
  world.tick(limits::kReopenDeadline - std::chrono::milliseconds(1));
  ASSERT_TRUE(job.ranks[1]->reconnect()) << "it had until now";
  world.tick(std::chrono::milliseconds(1));
  job.listen();
  EXPECT_FALSE(job.ranks[0]->epoch_ended());
  job.commit(5);
}

TEST_F(HandbackTest, EpochWithoutReconnectsIsNotCounted) {
  Job job(world, 2);
  job.start();
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  world.tick(limits::kReopenDeadline);
  EXPECT_THAT(world.daemon().metrics_text(), HasSubstr("ckptd_epochs_ended_total 0\n"));
  Job next(world, 2);
  next.start();
  EXPECT_EQ(next.ranks[0]->epoch().epoch, 2u);
}

TEST_F(HandbackTest, SessionCannotRejoinAsSecondRank) {
  Job job(world, 3);
  job.start();
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  ASSERT_TRUE(job.ranks[0]->reconnect());
  fb::RejoinEpochT second;
  second.rank = 1;
  second.epoch = 1;
  job.ranks[0]->send(second);
  EXPECT_THAT(job.ranks[0]->error(), HasSubstr("is rank 0 of epoch 1 already"));
  ASSERT_TRUE(job.ranks[2]->reconnect());
  job.ranks[0]->send(fb::LeaveGroupT());
  job.ranks[0]->send(second);
  EXPECT_THAT(job.ranks[0]->error(), HasSubstr("already"));
  job.ranks[0]->die();
  // Rank 1 can still rejoin, and then the others can continue.
  ASSERT_TRUE(job.ranks[1]->reconnect());
  job.replace(0);
  job.join(fb::ResumeMode::Continue);
  job.commit(5);
}

}  // namespace
}  // namespace ckptd::testing
