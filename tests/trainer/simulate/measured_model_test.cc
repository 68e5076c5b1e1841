// The model that moetrain calibrate derives from measurements, with the source of each figure.
#include "trainer/calibrate/measured_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "trainer/model/presets.h"
#include "trainer/simulate/model_file.h"

namespace moetrain::calibrate {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Measured measured() {
  Measured all{.ranks = 4};
  all.config.model = *preset("tiny");
  all.compute = {.dense_us_per_token = 3, .expert_us_per_token = 0.5};
  all.network = {1e9, 50, 2e9};
  all.copy_bytes_per_s = 5e9;
  all.restarted.checkpoints = {.count = 2, .bytes = 8'000'000, .durable_ms_p50 = 4};
  all.restarted.failures.push_back({.detected_ms = 100, .resumed_ms = 2100});
  all.continued.failures.push_back(
      {.detected_ms = 1,
       .resumed_ms = 185,
       .group = 3,
       .split_ms = {.detect = 60, .regroup = 104, .plan = 16, .migrate = 5, .first_step = 50}});
  return all;
}

// The comments of the model, by key.
std::map<std::string_view, std::string> comments_of(const MeasuredModel& result) {
  std::map<std::string_view, std::string> comments;
  for (size_t i = 0; i < result.comments.size(); ++i) {
    comments[simulate::parameters()[i].key] = result.comments[i];
  }
  return comments;
}

TEST(MeasuredModel, OursUsesTimesOfContinuedRun) {
  const auto result = measured_model(measured());
  ASSERT_TRUE(result.ok()) << result.error().message;
  const simulate::CostModel& model = result->model;
  EXPECT_DOUBLE_EQ(model.restart_s, 2);
  EXPECT_DOUBLE_EQ(model.ours_detect_s, 0.060);
  EXPECT_DOUBLE_EQ(model.ours_regroup_s, 0.104);
  EXPECT_DOUBLE_EQ(model.plan_s, 0.016);
  EXPECT_DOUBLE_EQ(model.regroup_s, model.ours_regroup_s) << "the baselines have no worse";
  EXPECT_EQ(model.replicas_min, 2);
  EXPECT_EQ(model.slots_per_rank, 6) << "8 experts twice on 3 ranks";
  EXPECT_DOUBLE_EQ(model.remote_write_bytes_per_s, 1e9);
}

TEST(MeasuredModel, MarksFiguresAsMeasuredOrAssumed) {
  const auto result = measured_model(measured());
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(result->comments.size(), simulate::parameters().size());
  const auto comments = comments_of(*result);
  for (const char* key : {"restart_s", "plan_s", "ours_detect_s", "ours_regroup_s",
                          "all_to_all_bytes_per_s", "remote_write_bytes_per_s"}) {
    EXPECT_THAT(comments.at(key), StartsWith("measured: ")) << key;
  }
  for (const char* key : {"timeout_s", "regroup_s", "join_wait_s", "remote_read_bytes_per_s",
                          "replicas_min", "slots_per_rank", "zipf", "ours_steps"}) {
    EXPECT_THAT(comments.at(key), StartsWith("assumed")) << key;
  }
  EXPECT_THAT(comments.at("timeout_s"), HasSubstr("arXiv:2407.04656"));
  const auto read =
      simulate::parse_model(simulate::model_text(result->model, result->comments), "here.toml");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_DOUBLE_EQ(read->plan_s, result->model.plan_s);
}

TEST(MeasuredModel, RefusesRunsWithoutMeasurements) {
  Measured none = measured();
  none.restarted.checkpoints.count = 0;
  EXPECT_THAT(measured_model(none).error().message, HasSubstr("saved 0 checkpoints"));
  none = measured();
  none.continued.failures[0].group = 0;  // all ranks resumed
  EXPECT_THAT(measured_model(none).error().message, HasSubstr("survivors continued after none"));
  none = measured();
  none.continued.failures[0].detected_ms.reset();  // the time of the loss is unknown
  EXPECT_FALSE(measured_model(none).ok());
}

TEST(MeasuredModel, SlotsHoldEachExpertTwiceWithoutOneRank) {
  ModelConfig shape = *preset("tiny");
  shape.experts = 8;
  EXPECT_EQ(slots(shape, 2), 8u) << "more than all there are no rank can hold";
  EXPECT_EQ(slots(shape, 3), 8u);
  EXPECT_EQ(slots(shape, 4), 6u);
  EXPECT_EQ(slots(shape, 9), 2u);
}

}  // namespace
}  // namespace moetrain::calibrate
