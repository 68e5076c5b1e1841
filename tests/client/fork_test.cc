// A trainer forks (a data loader): the child has copies of the session and of what belongs to it,
// and shares the socket. It exits as any process does.
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "tests/client/snapshot_fixture.h"

namespace ckpt::test {
namespace {

using ForkTest = SnapshotTest;

TEST_F(ForkTest, ExitingChildLeavesSnapshotToParent) {
  start({}, [this](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (message.body.type == fb::MessageBody::SealSlab) {
      announce(peer, fb::SnapshotLevel::Staged);
      announce(peer, fb::SnapshotLevel::Durable);
    }
    return false;
  });
  open({1000});
  std::optional<Snapshot> snapshot = begin();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool refused = !session_->query("status", "{}", 1'000);
    snapshot.reset();
    session_.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child used the session of its parent";
  write(*snapshot, 0);
  ASSERT_OK(snapshot->end());
  ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 20'000));
  for (const fb::MessageBody type : daemon_->types()) {
    EXPECT_NE(type, fb::MessageBody::AbortSnapshot);
  }
}

}  // namespace
}  // namespace ckpt::test
