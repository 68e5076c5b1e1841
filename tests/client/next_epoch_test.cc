// A snapshot whose epoch ends before it is durable.
#include "tests/client/snapshot_fixture.h"

namespace ckpt::test {
namespace {

// In the fake daemon's second epoch the survivors continue, or the epoch resumes from a view.
class NextEpochTest : public SnapshotTest {
 protected:
  void run(bool goes_on, bool staged) {
    start({}, [=, this](FakeDaemon::Peer& peer, const fb::MessageT& message) {
      if (message.body.type == fb::MessageBody::SealSlab && staged) {
        announce(peer, fb::SnapshotLevel::Staged);
      }
      const fb::JoinGroupT* join = message.body.AsJoinGroup();
      if (join == nullptr || !join->elastic) return false;
      fb::EpochStartedT body;
      body.request = join->request;
      body.epoch = 2;
      body.size = 1;
      body.lineage = 1;
      body.goes_on = goes_on;
      body.members = {7};
      body.previous_ranks = {0};
      peer.send(std::move(body));
      if (goes_on && staged) announce(peer, fb::SnapshotLevel::Durable);
      return true;
    });
    open({100});
    snapshot_.emplace(begin());
    write(*snapshot_, 0);
    ASSERT_OK(snapshot_->end());
    if (staged) ASSERT_OK(snapshot_->wait(CKPT_LEVEL_STAGED, 20'000));
    ASSERT_OK(session_->join({.rank = 0, .size = 1, .elastic = true, .member = 7}));
  }
  std::optional<Snapshot> snapshot_;
};

TEST_F(NextEpochTest, StagedSnapshotBecomesDurableWhenSurvivorsContinue) {
  run(true, true);
  ASSERT_OK(snapshot_->wait(CKPT_LEVEL_DURABLE, 20'000));
}

TEST_F(NextEpochTest, UnstagedSnapshotFails) {
  run(true, false);
  EXPECT_EQ(snapshot_->info().level, CKPT_LEVEL_FAILED);
}

TEST_F(NextEpochTest, SnapshotFailsIfEpochResumesFromView) {
  run(false, true);
  EXPECT_EQ(snapshot_->info().level, CKPT_LEVEL_FAILED);
  EXPECT_NE(snapshot_->info().reason.find("epoch 1 ended"), std::string::npos);
}

}  // namespace
}  // namespace ckpt::test
