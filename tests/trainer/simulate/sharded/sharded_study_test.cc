#include "trainer/simulate/sharded/sharded_study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/trainer/simulate/sharded/sharded_cluster.h"
#include "trainer/simulate/sharded/sharded_render.h"

namespace moetrain::simulate::sharded {
namespace {

using simtest::sharded_system;
using simtest::skewed_model;
using testing::HasSubstr;

TEST(ShardedStudy, FittedSkewGivesTargetImbalance) {
  ShardedModel model = skewed_model();
  const auto zipf = fit_skew(model, model.shapes[0], 1.8, {.steps = 3});
  ASSERT_TRUE(zipf.ok()) << zipf.error().message;
  model.shapes[0].zipf = *zipf;
  EXPECT_NEAR(simtest::step_of(model, sharded_system("fsdp-ep")).max_over_mean, 1.8, 0.01);
  EXPECT_FALSE(fit_skew(model, model.shapes[0], 1.001, {.steps = 3}).ok()) << "noise alone is more";
  EXPECT_FALSE(fit_skew(model, model.shapes[0], 40, {.steps = 3}).ok());
}

// The skew of each kind of shape is the result of `--fit-skew` for the published imbalance.
TEST(ShardedStudy, ShippedSkewMatchesFit) {
  const auto model = read_sharded_model(SIMULATE_MODELS "/sharded/laer-moe.toml");
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (const auto& [name, published] :
       {std::pair{"mixtral-8x7b-e8k2", 1.66}, std::pair{"mixtral-8x7b-e16k4", 1.73}}) {
    const auto shape = find_shape(*model, name);
    ASSERT_TRUE(shape.ok());
    const auto outcome = simulate_step(*model, **shape, sharded_system("fsdp-ep"), {});
    ASSERT_TRUE(outcome.ok());
    EXPECT_NEAR(outcome->max_over_mean, published, 0.005) << name;
  }
  for (size_t i : {0, 1}) EXPECT_EQ(model->shapes[i].zipf, model->shapes[i + 2].zipf);
}

TEST(ShardedStudy, ComparesEverySystemOnEveryShape) {
  ShardedModel model = skewed_model();
  model.shapes.push_back(model.shapes[0]);
  model.shapes[1].name = "deeper";
  model.shapes[1].layers = 6;
  const std::vector<const ShardedSystem*> systems{&sharded_system("fsdp-ep"),
                                                  &sharded_system("laer")};
  const auto results =
      compare_sharded(model, {&model.shapes[0], &model.shapes[1]}, systems, {.steps = 2});
  ASSERT_TRUE(results.ok());
  ASSERT_EQ(results->size(), 4U);
  EXPECT_EQ((*results)[1].system->name, "laer");
  EXPECT_EQ((*results)[2].shape->name, "deeper");
  EXPECT_GT((*results)[2].outcome.step.total(), (*results)[0].outcome.step.total());
}

TEST(ShardedStudy, VariationsChangeOneParameterEach) {
  const ShardedModel model = skewed_model();
  const std::vector<const ShardedSystem*> systems{&sharded_system("fsdp-ep")};
  const auto rows = vary_sharded(model, {&model.shapes[0]}, systems, {.steps = 2});
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->front().parameter, nullptr);
  const double given = rows->front().step_s[0];
  size_t seen = 0;
  for (const ShardedVaried& row : *rows) {
    if (row.parameter == nullptr) continue;
    if (row.parameter->key == "expert_flops_per_s") {
      ++seen;
      EXPECT_EQ(row.step_s[0]<given, row.factor> 1);
    }
    if (row.parameter->section == "megatron") {
      EXPECT_DOUBLE_EQ(row.step_s[0], given);
    }
    EXPECT_NE(row.parameter->key, "latency_us") << "0 times anything is 0";
  }
  EXPECT_EQ(seen, 2U);
}

TEST(ShardedStudy, ParsesPolicyNames) {
  EXPECT_EQ(parse_sharded_systems("all")->size(), 5U);
  EXPECT_EQ(parse_sharded_systems("megatron,laer")->size(), 2U);
  EXPECT_THAT(parse_sharded_systems("ds").error().message,
              HasSubstr("the policies are laer flexmoe eplb fsdp-ep megatron, or all"));
  EXPECT_FALSE(parse_sharded_systems("laer,laer").ok());
  EXPECT_FALSE(parse_sharded_systems("").ok());
}

TEST(ShardedStudy, DocumentsHaveEveryNumber) {
  const ShardedModel model = skewed_model();
  const std::vector<const ShardedSystem*> systems{&sharded_system("laer"),
                                                  &sharded_system("fsdp-ep")};
  const std::vector<const Shape*> shapes{&model.shapes[0]};
  const auto results = compare_sharded(model, shapes, systems, {.steps = 2});
  const auto varied = vary_sharded(model, shapes, systems, {.steps = 1});
  ASSERT_TRUE(results.ok() && varied.ok());
  const ShardedComparison comparison{.model = "m",
                                     .results = *results,
                                     .ablation = *results,
                                     .varied = *varied,
                                     .systems = systems};
  const auto document = nlohmann::json::parse(sharded_json(comparison));
  const auto& laer = document["shapes"]["skewed"]["laer"];
  double sum = 0;
  for (const auto& [part, seconds] : laer["parts"].items()) sum += seconds.get<double>();
  EXPECT_NEAR(sum, laer["step_s"].get<double>(), 1e-9);
  EXPECT_EQ(document["ablation"], document["shapes"]);
  EXPECT_EQ(document["sensitivity"][0]["parameter"], "as given");
  const std::string text = sharded_text(comparison);
  EXPECT_THAT(text, HasSubstr("m skewed"));
  EXPECT_THAT(text, HasSubstr("One ingredient removed"));
  EXPECT_THAT(text, HasSubstr("network.between_bytes_per_s"));
}

}  // namespace
}  // namespace moetrain::simulate::sharded
