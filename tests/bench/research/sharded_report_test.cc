#include "bench/research/sharded_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace bench {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const ShardedArm& arm_named(std::string_view name) {
  return *std::ranges::find(kShardedArms, name, &ShardedArm::name);
}

ShardedRun a_run(double step_seconds, int order = 0) {
  ShardedRun run{.order = order};
  run.figures.step_seconds = step_seconds;
  run.figures.max_over_mean = 1.25;
  run.figures.exchange = {.steps = 12, .memory_bytes = 500, .memory_bound = 600};
  run.resident_bytes_peak = 9'000;
  return run;
}

ShardedArmRuns runs_of(std::string_view name, const std::vector<double>& seconds) {
  ShardedArmRuns runs{.arm = arm_named(name), .runs = {}};
  for (const double each : seconds) runs.runs.push_back(a_run(each));
  return runs;
}

ShardedWorkloadRuns a_workload() {
  ShardedWorkloadRuns workload{.loads = "Zipf 1.2",
                               .ranks = 4,
                               .slots = 8,
                               .layers = 2,
                               .experts = 16,
                               .expert_elements = 1'000,
                               .arms = {}};
  workload.arms.push_back(runs_of("laer", {1.00, 1.01, 1.00, 1.01}));
  return workload;
}

const json& row_of(const json& rows, std::string_view arm) {
  return *std::ranges::find_if(rows, [&](const json& row) { return row["arm"] == arm; });
}

TEST(ShardedRows, CompareArmsWithReferenceOfSameRound) {
  ShardedWorkloadRuns workload = a_workload();
  workload.arms.push_back(runs_of("fsdp-ep", {1.50, 1.515, 1.50, 1.515}));
  workload.arms.push_back(runs_of("static-ep", {0.50, 0.505, 0.50, 0.505}));
  workload.arms.push_back(runs_of("no-prefetch", {1.10, 1.111, 1.10, 1.111}));
  const json rows = sharded_rows(workload);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["verdict"], "reference");
  EXPECT_FALSE(rows[0].contains("ratio_to_laer"));
  const json& fsdp = row_of(rows, "fsdp-ep");
  EXPECT_DOUBLE_EQ(fsdp["ratio_to_laer"], 1.5);
  EXPECT_EQ(fsdp["verdict"], "pass") << "laer is no slower";
  EXPECT_EQ(row_of(rows, "static-ep")["verdict"], "fail") << "laer is slower";
  EXPECT_EQ(row_of(rows, "no-prefetch")["verdict"], "measured");
  EXPECT_NEAR(row_of(rows, "no-prefetch")["ratio_to_laer"], 1.1, 1e-9);
}

TEST(ShardedRows, NoisyReferenceIsInconclusive) {
  ShardedWorkloadRuns workload = a_workload();
  workload.arms[0] = runs_of("laer", {1.0, 2.0, 1.0, 2.0});
  workload.arms.push_back(runs_of("fsdp-ep", {3.0, 6.0, 3.0, 6.0}));
  EXPECT_EQ(row_of(sharded_rows(workload), "fsdp-ep")["verdict"], "inconclusive");
}

// Other experts are popular in every other round, and laer takes longer there. Rounds of one order
// are neighbours when laer is compared with itself.
TEST(ShardedRows, RoundsOfOneOrderAreNeighbours) {
  ShardedWorkloadRuns workload = a_workload();
  workload.arms[0] = runs_of("laer", {1, 2, 1, 2, 1, 2, 1, 2, 1, 2});
  workload.arms.push_back(runs_of("fsdp-ep", {3, 6, 3, 6, 3, 6, 3, 6, 3, 6}));
  for (ShardedArmRuns& arm : workload.arms) {
    for (size_t round = 0; round < arm.runs.size(); ++round) {
      arm.runs[round].order = static_cast<int>(round % 2);
    }
  }
  const json row = row_of(sharded_rows(workload), "fsdp-ep");
  EXPECT_EQ(row["runs"], json({3, 3, 3, 3, 3, 6, 6, 6, 6, 6}));
  EXPECT_EQ(row["verdict"], "pass");
}

TEST(ShardedRows, RestoredBytesGiveRestoredExperts) {
  ShardedWorkloadRuns workload = a_workload();
  // 4 ranks restore 6 experts in each of 2 layers twice, three quarters of 1,000 elements each.
  for (ShardedRun& run : workload.arms[0].runs) {
    run.figures.exchange.restore_bytes = 4.0 * 6 * 2 * 2 * 750 * 4;
  }
  workload.arms.push_back(runs_of("static-ep", {1, 1, 1, 1}));
  const json rows = sharded_rows(workload);
  EXPECT_DOUBLE_EQ(rows[0]["exchange"]["experts_restored"], 6);
  EXPECT_FALSE(rows[1]["exchange"].contains("experts_restored"));
  EXPECT_EQ(rows[0]["slots"], 8);
  EXPECT_EQ(rows[1]["slots"], 4) << "static has as many as it needs";
}

TEST(ShardedRows, MemoryIsMaximumOverRuns) {
  ShardedWorkloadRuns workload = a_workload();
  workload.arms[0].runs[1].resident_bytes_peak = 10'000;
  workload.arms[0].runs[2].figures.exchange.memory_bytes = 550;
  workload.arms.push_back(runs_of("frontier", {1, 1, 1, 1}));
  const json rows = sharded_rows(workload);
  EXPECT_EQ(
      rows[0]["memory"],
      json({{"expert_bytes", 550}, {"expert_bytes_bound", 600}, {"resident_bytes_peak", 10'000}}));
  EXPECT_FALSE(rows[1]["memory"].contains("expert_bytes_bound"));
}

TEST(ShardedRows, OnlyShardedArmsHaveASchedule) {
  ShardedWorkloadRuns workload = a_workload();
  workload.arms[0].runs[0].schedule = {
      .steps = 2, .restores = {.exchanges = 16, .layers = 1.25}, .reshards = {8, 0.75}};
  workload.arms.push_back(runs_of("static-ep", {1, 1, 1, 1}));
  const json rows = sharded_rows(workload);
  EXPECT_EQ(rows[0]["schedule"]["restores"]["per_rank_and_step"], 8);
  EXPECT_EQ(rows[0]["schedule"]["restores"]["layers_ahead"], 1.25);
  EXPECT_EQ(rows[0]["schedule"]["reshards"]["layers_ahead"], 0.75);
  EXPECT_FALSE(rows[1].contains("schedule"));
}

TEST(ShardedRows, SingleDifferentLossFailsArm) {
  ShardedWorkloadRuns workload = a_workload();
  workload.arms.push_back(runs_of("eplb", {1, 1, 1, 1}));
  workload.arms.push_back(runs_of("plan-once", {1, 1, 1, 1}));
  for (ShardedArmRuns& arm : workload.arms) {
    for (size_t round = 0; round < arm.runs.size(); ++round) {
      arm.runs[round].loss_bits = static_cast<uint32_t>(70 + round);
    }
  }
  workload.arms[2].runs[3].loss_bits = 5;
  const json rows = sharded_rows(workload);
  EXPECT_TRUE(rows[1]["same_bits"]);
  EXPECT_FALSE(rows[2]["same_bits"]);
  EXPECT_EQ(rows[1]["verdict"], "measured");
  EXPECT_EQ(rows[2]["verdict"], "fail") << "whatever its time is";
}

TEST(NoteOnCores, SaysWhatTimesCannotShow) {
  EXPECT_THAT(note_on_cores(2, 4), HasSubstr("step times cannot show overlap"));
  EXPECT_THAT(note_on_cores(2, 4), HasSubstr("hides imbalance"));
  EXPECT_THAT(note_on_cores(4, 4), HasSubstr("time shows imbalance"));
  EXPECT_THAT(note_on_cores(8, 4), HasSubstr("a core to communicate"));
}

TEST(ShardedRowText, HasTheFiguresOfARow) {
  ShardedWorkloadRuns workload = a_workload();
  workload.arms.push_back(runs_of("fsdp-ep", {1.50, 1.515, 1.50, 1.515}));
  const json rows = sharded_rows(workload);
  EXPECT_THAT(sharded_row_text(rows[1]), HasSubstr("4x4  fsdp-ep"));
  EXPECT_THAT(sharded_row_text(rows[1]), HasSubstr("1.500 of laer"));
  EXPECT_THAT(sharded_row_text(rows[0]), HasSubstr("max/mean 1.250"));
}

}  // namespace
}  // namespace bench
