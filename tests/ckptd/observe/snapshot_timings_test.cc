// Timings of a snapshot from the moments that the daemon sees, and their histograms.
#include "ckptd/observe/snapshot_timings.h"

#include <gmock/gmock.h>

#include "ckptd/limits.h"
#include "ckptd/observe/metrics_text.h"

namespace ckptd {
namespace {

using std::chrono::nanoseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SnapshotTimer, PartsAreDifferencesOfTimestamps) {
  SnapshotTimer timer;
  timer.staged(nanoseconds(100));
  timer.written(nanoseconds(107));
  timer.synced(nanoseconds(118));
  timer.recorded(nanoseconds(131));
  EXPECT_EQ(timer.timings(),
            (ckpt::SnapshotTimings{.write_ns = 7, .sync_ns = 11, .journal_ns = 13}));
}

TEST(LateRank, CountsFromTheLastSealOfAllOthers) {
  LateRank late;
  EXPECT_EQ(late.last(), std::nullopt);
  late.sealed(2, nanoseconds(10));
  late.sealed(2, nanoseconds(30));
  EXPECT_EQ(late.last(), 2u);
  EXPECT_EQ(late.late(), nanoseconds(0)) << "no other rank has sealed";
  late.sealed(0, nanoseconds(40));
  EXPECT_EQ(late.late(), nanoseconds(10));
  late.sealed(0, nanoseconds(55));
  EXPECT_EQ(late.last(), 0u);
  EXPECT_EQ(late.late(), nanoseconds(25));
  late.sealed(2, nanoseconds(60));
  EXPECT_EQ(late.late(), nanoseconds(5)) << "rank 2 was the last one after all";
}

TEST(SnapshotTimer, KeepsTheLongestPartOfAnyMember) {
  SnapshotTimer timer;
  timer.member_reported({.plan_ns = 5, .begin_ns = 1, .copy_ns = 40});
  timer.member_reported({.plan_ns = 3, .begin_ns = 2, .slab_wait_ns = 9, .seal_ns = 4});
  timer.member_reported({});  // a client that knows no timings
  EXPECT_EQ(timer.timings(),
            (ckpt::SnapshotTimings{
                .plan_ns = 5, .begin_ns = 2, .slab_wait_ns = 9, .copy_ns = 40, .seal_ns = 4}));
}

TEST(SnapshotTimer, IgnoresDaemonPartsReportedByMembers) {
  SnapshotTimer timer;
  timer.member_reported({.write_ns = 1, .sync_ns = 2, .journal_ns = 3});
  EXPECT_EQ(timer.timings(), ckpt::SnapshotTimings());
}

TEST(SnapshotTimer, AbsurdPartsAreCapped) {
  SnapshotTimer timer;
  timer.member_reported({.copy_ns = UINT64_MAX});
  EXPECT_EQ(timer.timings().copy_ns,
            static_cast<uint64_t>(nanoseconds(limits::kClientTimingMax).count()));
}

TEST(SnapshotTimer, UnstagedSnapshotHasNoPartsOfTheDaemon) {
  SnapshotTimer timer;
  timer.written(nanoseconds(5));
  timer.synced(nanoseconds(6));
  EXPECT_EQ(timer.timings(), ckpt::SnapshotTimings());
}

TEST(Histogram, CountsADurationAtItsBound) {
  Histogram histogram;
  for (const double seconds : {0.0, 0.001, 0.0011, 2.0, 101.0}) histogram.add(seconds);
  EXPECT_THAT(histogram.counts(), ElementsAre(2, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1));
  EXPECT_DOUBLE_EQ(histogram.sum(), 103.0021);
}

TEST(SnapshotHistograms, TextHasPrometheusFormat) {
  SnapshotHistograms histograms;
  histograms.add({.copy_ns = 2'000'000'000, .sync_ns = 20'000'000});
  MetricsText text;
  text.histogram("t_seconds", "Help.", histograms.of_part(3), "part", "copy");
  text.histogram("t_seconds", "Help.", histograms.of_part(6), "part", "sync");
  EXPECT_THAT(text.text(),
              ::testing::StartsWith("# HELP t_seconds Help.\n"
                                    "# TYPE t_seconds histogram\n"
                                    "t_seconds_bucket{part=\"copy\",le=\"0.001\"} 0\n"
                                    "t_seconds_bucket{part=\"copy\",le=\"0.003\"} 0\n"));
  EXPECT_THAT(text.text(), HasSubstr("t_seconds_bucket{part=\"copy\",le=\"1\"} 0\n"
                                     "t_seconds_bucket{part=\"copy\",le=\"3\"} 1\n"
                                     "t_seconds_bucket{part=\"copy\",le=\"10\"} 1\n"));
  EXPECT_THAT(text.text(), HasSubstr("t_seconds_bucket{part=\"copy\",le=\"+Inf\"} 1\n"
                                     "t_seconds_sum{part=\"copy\"} 2\n"
                                     "t_seconds_count{part=\"copy\"} 1\n"
                                     "t_seconds_bucket{part=\"sync\",le=\"0.001\"} 0\n"));
  EXPECT_THAT(text.text(), HasSubstr("t_seconds_sum{part=\"sync\"} 0.02\n"));
}

TEST(SnapshotHistograms, PartsWithoutClientReportAreNotCounted) {
  SnapshotHistograms histograms;
  histograms.add({.write_ns = 1});
  EXPECT_THAT(histograms.of_part(3).counts(), Not(::testing::Contains(1)));
  EXPECT_THAT(histograms.of_part(5).counts(), ::testing::Contains(1));
  EXPECT_THAT(histograms.of_part(7).counts(), ::testing::Contains(1)) << "measured as 0";
}

}  // namespace
}  // namespace ckptd
