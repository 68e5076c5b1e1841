// Rules for replacing a run. With a daemon: tests/ckptd/daemon/replace_run_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckptd/runs/replace_run.h"

namespace ckptd {
namespace {

RunInfo run_of(uint32_t uid, uint64_t commits) {
  RunInfo run;
  run.id = 3;
  run.uid = uid;
  run.commits = commits;
  run.metadata = "{}";
  return run;
}

TEST(ReplaceRun, OnlyOwnerReplacesRunWithoutCommits) {
  EXPECT_TRUE(never_committed(run_of(5, 0), 5));
  EXPECT_FALSE(never_committed(run_of(5, 1), 5));
  EXPECT_FALSE(never_committed(run_of(5, 0), 0)) << "not even root";
}

TEST(ReplaceRun, EmptyConfigurationIsNoDifference) {
  EXPECT_FALSE(differs(run_of(5, 0), ""));
  EXPECT_FALSE(differs(run_of(5, 0), "{}"));
  EXPECT_TRUE(differs(run_of(5, 0), R"({"layers": 4})"));
}

TEST(ReplaceRun, RefusalDistinguishesUseFromTransientState) {
  const ckpt::Error differ{ckpt::ErrorCode::kFailedPrecondition, "units differ",
                           ckpt::ErrorDetail::kUnitsDiffer};
  const auto refusal = [&differ](ckpt::ErrorCode unused) {
    return still_in_use(differ, ckpt::make_error(unused, "why")).error();
  };
  const ckpt::Error in_use = refusal(ckpt::ErrorCode::kFailedPrecondition);
  EXPECT_EQ(in_use.code, ckpt::ErrorCode::kFailedPrecondition);
  EXPECT_EQ(in_use.detail, ckpt::ErrorDetail::kRunInUse);
  EXPECT_EQ(in_use.message, "units differ; without a commit it would be replaced, but why");
  EXPECT_EQ(refusal(ckpt::ErrorCode::kUnavailable).detail, ckpt::ErrorDetail::kNone);
  EXPECT_TRUE(still_in_use({}, ckpt::make_error(ckpt::ErrorCode::kUnavailable, "why")).ok())
      << "only the configuration differs";
}

TEST(ReplaceRun, NewRunKeepsRulesAndGrants) {
  RunInfo run = run_of(5, 0);
  EXPECT_TRUE(kept_settings(run, ckpt::KeepRules(), 4, 1).empty());
  run.grants[9] = ckpt::Rights();
  const auto records = kept_settings(run, ckpt::KeepRules(), 4, 1);
  ASSERT_EQ(records.size(), 1u);
  const auto* granted = records[0].body.AsGranted();
  ASSERT_NE(granted, nullptr);
  EXPECT_EQ(granted->run, 4u);
}

}  // namespace
}  // namespace ckptd
