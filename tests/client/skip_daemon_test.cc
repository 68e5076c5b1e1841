// Snapshots that do not wait for slabs, against the real daemon.
#include "tests/client/trainers.h"

namespace ckpt::test {
namespace {

// Half a GiB takes the kernel longer than a join takes: the daemon still faults it in.
TEST(SkipDaemon, FirstSnapshotWaitsForArenaDespiteSkip) {
  DaemonProcess daemon({"--warm-pool", "0"});
  SmallRun run;
  run.unit_bytes = {400 << 20};
  run.arena_bytes = 512 << 20;
  run.slab_bytes = 16 << 20;
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  ASSERT_OK(session->join(as_rank(0, 1)));
  client::SnapshotOptions plan = run.plan(1, 1);
  plan.out_of_slabs = CKPT_SLABS_SKIP;
  auto first = session->begin(plan);
  ASSERT_OK(first);
  const std::vector<char> bytes(run.unit_bytes[0]);
  ASSERT_OK(first->write(0, 0, bytes.data(), bytes.size()));
  // Now an earlier snapshot holds the slabs.
  plan.step = 2;
  const auto second = session->begin(plan);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("earlier snapshots are not written yet"), std::string::npos)
      << second.error().message;
}

}  // namespace
}  // namespace ckpt::test
