#include "tests/trainer/simulate/sharded/sharded_cluster.h"

#include <gtest/gtest.h>

namespace simtest {

namespace sharded = moetrain::simulate::sharded;

sharded::ShardedModel hand_model() {
  sharded::ShardedModel model{};
  model.nodes = 2;
  model.ranks_per_node = 2;
  model.sequences = 4;
  model.sequence_tokens = 90;
  model.vocabulary = 13;
  model.key_value_width = 10;
  model.expert_flops_per_s = 600e3;
  model.dense_flops_per_s = 2.6e6;
  model.optimizer_bytes_per_parameter = 4;
  model.memory_bytes_per_s = 23'000;
  model.routing_us = 1000;
  model.within_bytes_per_s = 1.2e5;
  model.between_bytes_per_s = 1.44e4;
  model.shapes.push_back({.name = "hand",
                          .layers = 2,
                          .hidden = 10,
                          .ffn = 10,
                          .experts = 2,
                          .top_k = 1,
                          .slots = 1,
                          .tensor_parallel = 2,
                          .zipf = 1});
  return model;
}

sharded::ShardedModel skewed_model() {
  sharded::ShardedModel model = hand_model();
  model.ranks_per_node = 4;
  model.sequences = 32;
  model.sequences_per_rank = 2;
  model.sequence_noise = 0.5;
  model.shapes[0] = {.name = "skewed",
                     .layers = 4,
                     .hidden = 10,
                     .ffn = 10,
                     .experts = 8,
                     .top_k = 2,
                     .slots = 2,
                     .tensor_parallel = 4,
                     .zipf = 1.2};
  return model;
}

const sharded::ShardedSystem& sharded_system(std::string_view name) {
  const auto found = sharded::parse_sharded_systems(name);
  EXPECT_TRUE(found.ok()) << name;
  return *found->front();
}

sharded::ShardedOutcome step_of(const sharded::ShardedModel& model,
                                const sharded::ShardedSystem& system) {
  const ckpt::Status valid = sharded::validate(model);
  EXPECT_TRUE(valid.ok()) << valid.error().message;
  const auto outcome = sharded::simulate_step(model, model.shapes[0], system, {.steps = 3});
  EXPECT_TRUE(outcome.ok()) << outcome.error().message;
  return outcome.ok() ? *outcome : sharded::ShardedOutcome{};
}

}  // namespace simtest
