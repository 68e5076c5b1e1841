// Invariants of an open snapshot, broken once by their caller. See docs/internals/invariants.md.
#include <gtest/gtest.h>

#include "ckptd/ingest/open_snapshot.h"

namespace ckptd {
namespace {

OpenSnapshot one_rank() {
  std::vector<ckpt::UnitSpec> units(1);
  units[0].name = "trainer";
  units[0].bytes = 1000;
  return {{.snapshot = {.run = 1, .lineage = 1, .epoch = 1, .step = 5}, .group_size = 1},
          std::make_shared<const std::vector<ckpt::UnitSpec>>(units)};
}

TEST(OpenSnapshotInvariants, WrittenWithoutSealAborts) {
  OpenSnapshot snapshot = one_rank();
  EXPECT_DEATH(snapshot.written(), "more have ended than have begun");
}

TEST(OpenSnapshotInvariants, ACommitBeforeAllRanksSealedAborts) {
  const OpenSnapshot snapshot = one_rank();
  EXPECT_DEATH((void)snapshot.commit_action(), "a commit before all slabs are sealed and written");
}

}  // namespace
}  // namespace ckptd
