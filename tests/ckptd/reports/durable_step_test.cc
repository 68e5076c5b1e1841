#include "ckptd/reports/durable_step.h"

#include <gtest/gtest.h>

namespace ckptd {
namespace {

CommitInfo commit_at(ckpt::Step step) {
  CommitInfo commit;
  commit.snapshot = {.run = 1, .lineage = 3, .epoch = 2, .step = step};
  commit.time_ns = 77;
  return commit;
}

TEST(DurableStep, HasLineageStepAndTimeOfCommit) {
  const RunProgress::Durable durable = durable_of(commit_at(25));
  EXPECT_EQ(durable.lineage, 3u);
  EXPECT_EQ(durable.step, 25u);
  EXPECT_EQ(durable.time_ns, 77u);
}

TEST(DurableStep, LossesAreUnknownUnlessTrainerReportsThem) {
  EXPECT_FALSE(durable_of(commit_at(25)).lost_tokens.has_value());
  EXPECT_FALSE(durable_of(commit_at(25)).plt.has_value());
  CommitInfo lossless = commit_at(25);
  lossless.metrics["plt"] = 0;
  EXPECT_EQ(durable_of(lossless).lost_tokens, 0u);
  EXPECT_EQ(durable_of(lossless).plt, 0.0);
  CommitInfo lossy = commit_at(25);
  lossy.lost_tokens = 4;
  EXPECT_EQ(durable_of(lossy).lost_tokens, 4u);
  EXPECT_FALSE(durable_of(lossy).plt.has_value());
}

}  // namespace
}  // namespace ckptd
