#include "trainer/elastic/run_outcome.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace moetrain {
namespace {

using ckpt::ErrorCode;

ckpt::Error disk_error() { return ckpt::make_error(ErrorCode::kCorrupt, "a disk failed"); }

TEST(RunOutcome, FirstStopSignalCounts) {
  RunOutcome outcome;
  EXPECT_FALSE(outcome.is_stopping());
  outcome.asked_to_stop(SIGINT, 7);
  outcome.asked_to_stop(SIGTERM, 9);
  EXPECT_TRUE(outcome.is_stopping());
  EXPECT_EQ(outcome.stop_signal(), SIGINT);
  EXPECT_EQ(outcome.stopped_ns(), 7u);
  EXPECT_EQ(outcome.stopped_by(), "by SIGINT");
  EXPECT_EQ(outcome.stopped_exit_code(1), 128 + SIGINT);
}

TEST(RunOutcome, FirstFailureCounts) {
  RunOutcome outcome;
  outcome.fail(disk_error());
  outcome.asked_to_stop(SIGTERM, 1);
  outcome.fail(ckpt::make_error(ErrorCode::kAborted, "later"));
  EXPECT_EQ(outcome.failure()->message, "a disk failed");
  EXPECT_EQ(outcome.failure_text("cause"), "cause");
  EXPECT_EQ(outcome.failed_exit_code(), ckpt::exit_code_for(ErrorCode::kCorrupt));
}

TEST(RunOutcome, FailureWhileStoppingNamesTheSignal) {
  RunOutcome outcome;
  outcome.asked_to_stop(SIGTERM, 1);
  outcome.fail(disk_error());
  EXPECT_EQ(outcome.failure_text("cause"), "stopped by SIGTERM, without a last checkpoint: cause");
  EXPECT_EQ(outcome.failed_exit_code(), 128 + SIGTERM);
  outcome.saved_last("");
  EXPECT_EQ(outcome.failure_text("cause"), "stopped by SIGTERM: cause");
}

TEST(RunOutcome, StopAtOnceIsItsOwnReason) {
  RunOutcome outcome;
  outcome.asked_to_stop(SIGTERM, 1);
  outcome.fail_unsaved(ckpt::make_error(ErrorCode::kAborted, "stopped at once"));
  EXPECT_EQ(outcome.failure_text("stopped at once"), "stopped at once");
  EXPECT_EQ(outcome.failed_exit_code(), 128 + SIGTERM);
}

TEST(RunOutcome, StopAtOnceAfterAFailureChangesNothing) {
  RunOutcome outcome;
  outcome.fail(disk_error());
  const uint64_t drain_ms = outcome.drain_ms();
  outcome.fail_unsaved(ckpt::make_error(ErrorCode::kAborted, "stopped at once"));
  EXPECT_EQ(outcome.failure()->message, "a disk failed");
  EXPECT_EQ(outcome.drain_ms(), drain_ms);
}

TEST(RunOutcome, UrgentStopShortensDrain) {
  const uint64_t unhurried_ms = RunOutcome().drain_ms();
  RunOutcome unsaved;
  unsaved.last_save_failed();
  EXPECT_LT(unsaved.drain_ms(), unhurried_ms);
  RunOutcome stopped;
  stopped.asked_to_stop(SIGTERM, 1);
  EXPECT_EQ(stopped.drain_ms(), unsaved.drain_ms());
  stopped.fail_unsaved(disk_error());
  EXPECT_LT(stopped.drain_ms(), unsaved.drain_ms());
}

TEST(RunOutcome, UnsavedLimitStopsRunByItself) {
  RunOutcome outcome;
  EXPECT_EQ(outcome.stopped_by(), "as its ranks were asked to stop");
  EXPECT_EQ(outcome.stopped_exit_code(0), 128 + SIGTERM);
  EXPECT_EQ(outcome.stopped_exit_code(1), 1);
  outcome.limit_reached("100 steps are unsaved");
  EXPECT_TRUE(outcome.is_stopping());
  outcome.saved_last("");
  EXPECT_EQ(outcome.stop_reason(), "100 steps are unsaved");
  outcome.saved_last("rank 1 ran out of time");
  EXPECT_EQ(outcome.stop_reason(), "rank 1 ran out of time");
  EXPECT_EQ(outcome.stopped_by(), "by itself");
  EXPECT_EQ(outcome.stopped_exit_code(0), 1);
}

}  // namespace
}  // namespace moetrain
