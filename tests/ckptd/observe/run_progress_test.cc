// RunProgress: the last durable step of each run, the failures since, and their texts.
#include "ckptd/observe/run_progress.h"

#include <gmock/gmock.h>

#include "ckptd/observe/health_text.h"

namespace ckptd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Names = std::set<std::string>;

constexpr uint64_t kProgressSecond = 1'000'000'000;

RunProgress::Failure full(uint64_t step) {
  return {step, "disk full: " + std::to_string(step) + " B", "disk full", true};
}
std::string lines(const RunProgress& progress) {
  return progress_lines(progress, 22 * kProgressSecond, 9);
}
RunProgress::Durable commit(uint64_t step, uint64_t time_ns) {
  return {.lineage = 1, .step = step, .time_ns = time_ns, .lost_tokens = {}, .plt = {}};
}

TEST(RunProgress, FailuresCountUntilTheNextCommit) {
  RunProgress progress;
  EXPECT_EQ(progress.durable("tiny", commit(5, 1)), std::nullopt);
  EXPECT_TRUE(progress.failed("tiny", full(10), 2));
  EXPECT_FALSE(progress.failed("tiny", full(15), 3)) << "the same cause";
  EXPECT_TRUE(progress.failed("tiny", {20, "read error 5", "read error #", true}, 4)) << "another";
  const auto over = progress.durable("tiny", commit(25, 5));
  ASSERT_TRUE(over.has_value());
  EXPECT_EQ(over->count, 3u);
  EXPECT_EQ(over->first_step, 10u);
  EXPECT_EQ(over->last_step, 20u);
  EXPECT_TRUE(progress.failed("tiny", full(30), 6)) << "it begins anew";
}

TEST(RunProgress, CausesOfOneKindDifferInNumbersOnly) {
  EXPECT_EQ(kind_of_cause("12.5 MiB of 3 GiB"), kind_of_cause("7 MiB of 14.25 GiB"));
  EXPECT_NE(kind_of_cause("12.5 MiB of 3 GiB"), kind_of_cause("12.5 KiB of 3 GiB"));
}

TEST(RunProgress, LinesNameStepAgeAndFailures) {
  RunProgress progress;
  progress.durable("tiny", commit(60, 10 * kProgressSecond));
  progress.update(Names{"tiny"}, {});
  EXPECT_EQ(lines(progress), "run tiny: step 60 is durable, 12 s old, trained\n");
  progress.failed("tiny", full(65), 20 * kProgressSecond);
  EXPECT_THAT(lines(progress),
              HasSubstr("1 snapshot failed since, the last of step 65: disk full\n"));
  progress.update(Names{"tiny"},
                  {{"tiny", {.count = 2, .first_step = 66, .longest_ns = 25'000'000'000}}});
  EXPECT_THAT(lines(progress),
              HasSubstr("; 2 snapshots wait for the disk, the oldest, of step 66, for 25 s; 1 sn"));
}

TEST(RunProgress, TrainedRunIsListedBeforeFirstDurableStep) {
  RunProgress progress;
  progress.durable("old", commit(60, 10 * kProgressSecond));
  progress.update(Names{"new"}, {});
  EXPECT_EQ(progress_lines(progress, 22 * kProgressSecond, 1),
            "run new: no step is durable yet, trained\nand 1 more run\n");
  progress.update(std::nullopt, {});
  EXPECT_TRUE(progress.runs().at("new").trained) << "nobody can tell, so it stays";
  progress.update(Names(), {});
  EXPECT_EQ(progress.runs().size(), 1u) << "a run that saved nothing is not kept";
}

TEST(RunProgress, DiskFailuresAreListedAfterTrainingEnds) {
  RunProgress progress;
  progress.failed("full", full(5), 1);
  progress.failed("full", {6, "rank 0 died", "rank # died", false}, 2);
  progress.failed("lost", {1, "rank 0 died", "rank # died", false}, 3);
  progress.update(Names(), {});
  EXPECT_EQ(lines(progress),
            "run full: no step is durable yet; 2 snapshots failed since, one of step 5: "
            "disk full\n");
  progress.update(std::nullopt, {});
  EXPECT_EQ(progress.runs().size(), 1u);
  progress.forget("full");
  EXPECT_EQ(lines(progress), "");
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
  EXPECT_THAT(progress_lines(progress, 100 * kProgressSecond, 10), HasSubstr("and 40 more runs"));
}

}  // namespace
}  // namespace ckptd
