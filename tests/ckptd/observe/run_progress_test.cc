// RunProgress: the last durable step of each run, the failures since, and their texts.
#include "ckptd/observe/run_progress.h"

#include <gmock/gmock.h>

#include "ckptd/observe/health_text.h"

namespace ckptd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr uint64_t kProgressSecond = 1'000'000'000;

RunProgress::Durable commit(uint64_t step, uint64_t time_ns) {
  return {.lineage = 1, .step = step, .time_ns = time_ns, .lost_tokens = {}, .plt = {}};
}
bool trained(const std::string& run) { return run == "tiny"; }

TEST(RunProgress, FailuresCountUntilTheNextCommit) {
  RunProgress progress;
  EXPECT_EQ(progress.durable("tiny", commit(5, 1)), std::nullopt);
  EXPECT_TRUE(progress.failed("tiny", 10, "disk full: 7 B", "disk full", 2));
  EXPECT_FALSE(progress.failed("tiny", 15, "disk full: 6 B", "disk full", 3)) << "the same cause";
  EXPECT_TRUE(progress.failed("tiny", 20, "rank 1 died", "rank # died", 4)) << "another";
  const auto over = progress.durable("tiny", commit(25, 5));
  ASSERT_TRUE(over.has_value());
  EXPECT_EQ(over->count, 3u);
  EXPECT_EQ(over->first_step, 10u);
  EXPECT_EQ(over->last_step, 20u);
  EXPECT_TRUE(progress.failed("tiny", 30, "disk full: 5 B", "disk full", 6)) << "it begins anew";
}

TEST(RunProgress, CausesOfOneKindDifferInNumbersOnly) {
  EXPECT_EQ(kind_of_cause("12.5 MiB of 3 GiB"), kind_of_cause("7 MiB of 14.25 GiB"));
  EXPECT_NE(kind_of_cause("12.5 MiB of 3 GiB"), kind_of_cause("12.5 KiB of 3 GiB"));
}

TEST(RunProgress, LinesTellStepAgeAndFailures) {
  RunProgress progress;
  progress.durable("tiny", commit(60, 10 * kProgressSecond));
  EXPECT_EQ(progress_lines(progress, 22 * kProgressSecond, 9, trained),
            "run tiny: step 60 is durable, 12 s old, trained\n");
  progress.failed("tiny", 65, "disk full: no space", "disk full", 20 * kProgressSecond);
  EXPECT_THAT(progress_lines(progress, 22 * kProgressSecond, 9, trained),
              HasSubstr("1 snapshots failed since, the last of step 65: disk full: no space"));
  progress.ended("tiny");
  EXPECT_THAT(progress_lines(progress, 22 * kProgressSecond, 9, trained), Not(HasSubstr("failed")));
  progress.failed("new", 1, "rank 0 died", "rank # died", 21 * kProgressSecond);
  EXPECT_THAT(progress_lines(progress, 22 * kProgressSecond, 9, trained),
              StartsWith("run new: no step is durable; 1 snapshots failed"));
  progress.ended("new");
  EXPECT_EQ(progress.runs().size(), 1u) << "a run that saved nothing is not kept";
}

// However many runs a store has, a scrape stays small.
TEST(RunProgress, ShowsTheRunsThatChangedLast) {
  RunProgress progress;
  for (uint64_t i = 0; i < 50; ++i) {
    progress.durable("run" + std::to_string(i), commit(i, i * kProgressSecond));
  }
  MetricsText text;
  add_progress(text, progress, 100 * kProgressSecond, 10);
  EXPECT_THAT(text.text(), HasSubstr("ckptd_run_step{run=\"run49\"} 49\n"));
  EXPECT_THAT(text.text(), HasSubstr("ckptd_run_durable_age_seconds{run=\"run49\"} 51\n"));
  EXPECT_THAT(text.text(), HasSubstr("{run=\"run40\"}"));
  EXPECT_THAT(text.text(), Not(HasSubstr("{run=\"run39\"}")));
  EXPECT_THAT(text.text(), HasSubstr("ckptd_runs_not_shown 40\n"));
  EXPECT_THAT(progress_lines(progress, 100 * kProgressSecond, 10, trained),
              HasSubstr("and 40 more runs"));
}

}  // namespace
}  // namespace ckptd
