// Each invariant of restores, broken once by its owner. See docs/internals/invariants.md.
#include <gtest/gtest.h>

#include "tests/ckptd/restore/restore_store.h"

namespace ckptd {
namespace {

class RestoreInvariants : public testing::Test {
 protected:
  RestoreInvariants() { store_.commit_all({1, 5}); }

  std::unique_ptr<RestoreJob> make_job() {
    const RestoreRequest request{kTestRun, {1, 5}, store_.whole_units(), false};
    auto plan = plan_restore(
        request, catalog_oracle(store_.catalog, request, store_.sources.places(kRestoreUid)));
    EXPECT_TRUE(plan.ok());
    return std::make_unique<RestoreJob>(store_.restore_context(), store_.granted.arena, kRestoreUid,
                                        request, std::move(*plan), [](Result<Window>) {});
  }
  void close(RestoreJob& job) {
    bool closed = false;
    job.close([&] { closed = true; });
    run_all(store_.disk, *store_.executor);
    EXPECT_TRUE(closed);
  }

  RestoreStore store_{restore_units()};
};

TEST_F(RestoreInvariants, RestoreFreedBeforeCloseAborts) {
  auto job = make_job();
  EXPECT_DEATH(job.reset(), "a restore was not closed");
  close(*job);
}

TEST_F(RestoreInvariants, ARestoreClosedTwiceAborts) {
  const auto job = make_job();
  close(*job);
  EXPECT_DEATH(job->close([] {}), "a restore is closed twice");
}

TEST_F(RestoreInvariants, SegmentReaderFreedWithOpenSegmentAborts) {
  auto segments = std::make_unique<SegmentReader>(store_.disk, kRestoreStoreId);
  SegmentHandle held;
  segments->open(1, [&](Result<SegmentHandle> handle) { held = std::move(handle).value(); });
  run_all(store_.disk, *store_.executor);
  EXPECT_DEATH(segments.reset(), "a segment is still being read");
  held.reset();
}

}  // namespace
}  // namespace ckptd
