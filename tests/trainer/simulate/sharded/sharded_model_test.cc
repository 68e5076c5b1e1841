#include "trainer/simulate/sharded/sharded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "trainer/simulate/random.h"

namespace moetrain::simulate::sharded {
namespace {

using testing::HasSubstr;

const std::string kShipped = SIMULATE_MODELS "/sharded/laer-moe.toml";

std::string shipped_text() {
  std::ostringstream text;
  text << std::ifstream(kShipped).rdbuf();
  return text.str();
}

std::string error_of_sharded(const std::string& pattern, const std::string& with) {
  std::string text = shipped_text();
  const size_t at = text.find(pattern);
  EXPECT_NE(at, std::string::npos) << pattern;
  const auto model = parse_sharded_model(text.replace(at, pattern.size(), with), "m.toml");
  return model.ok() ? "" : model.error().message;
}

TEST(ShardedModelFile, ShippedModelIsValid) {
  const auto model = read_sharded_model(kShipped);
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(model->shapes.size(), 4U);
  EXPECT_EQ(model->shapes[0].name, "mixtral-8x7b-e8k2") << "in the order of the file";
  EXPECT_EQ(model->shapes[3].name, "mixtral-8x22b-e16k4");
  EXPECT_EQ(model->ranks(), 32U);
  EXPECT_EQ(model->shapes[1].ffn, 7168);
  EXPECT_EQ(megatron_expert_ranks(*model, model->shapes[0]), 8U);
  EXPECT_EQ((*find_shape(*model, "mixtral-8x22b-e8k2"))->layers, 18);
  EXPECT_THAT(find_shape(*model, "x").error().message, HasSubstr("mixtral-8x22b-e16k4, or all"));
}

TEST(ShardedModelFile, ErrorsNameTheKey) {
  EXPECT_THAT(error_of_sharded("nodes = 4 ", "nodes = 4.5 "),
              HasSubstr("cluster.nodes: must be a whole number from 1 to 4096"));
  EXPECT_THAT(error_of_sharded("latency_us", "latency"),
              HasSubstr("network.latency: unknown key; [network] has: within_bytes_per_s"));
  EXPECT_THAT(error_of_sharded("slots = 4 ", "slots = 0 "),
              HasSubstr("shape.mixtral-8x7b-e16k4.slots: must be"));
  EXPECT_THAT(error_of_sharded("seed = 1", ""), HasSubstr("load.seed is missing"));
  EXPECT_THAT(error_of_sharded("zipf = ", "zip = "),
              HasSubstr("shape.mixtral-8x7b-e8k2.zip: unknown key"));
  EXPECT_THAT(error_of_sharded("[load]", "[loads]"), HasSubstr("loads: unknown section"));
  EXPECT_THAT(error_of_sharded("[shape.mixtral-8x22b-e8k2]", "[shape.mixtral-8x7b-e8k2.x]"),
              HasSubstr("unknown"));
}

TEST(ShardedModelFile, RefusesInconsistentNumbers) {
  EXPECT_THAT(error_of_sharded("sequences = 128", "sequences = 96"),
              HasSubstr("training.sequences 96: micro-batches have 64"));
  EXPECT_THAT(error_of_sharded("tensor_parallel = 8", "tensor_parallel = 3"),
              HasSubstr("shape.mixtral-8x7b-e8k2.tensor_parallel 3: must divide the 8 ranks"));
  EXPECT_THAT(error_of_sharded("top_k = 2", "top_k = 9"), HasSubstr("top_k 9: at most its 8"));
  const auto none = parse_sharded_model("", "m.toml");
  EXPECT_FALSE(none.ok());
}

TEST(ShardedModelFile, SettingsOverrideFile) {
  auto model = read_sharded_model(kShipped);
  ASSERT_TRUE(model.ok());
  ASSERT_TRUE(set_parameter(*model, "load.sequence_noise=0").ok());
  EXPECT_EQ(model->sequence_noise, 0);
  ASSERT_TRUE(set_parameter(*model, "shape.slots=8").ok());
  EXPECT_EQ(model->shapes[0].slots, 8);
  EXPECT_EQ(model->shapes[3].slots, 8);
  const auto error = [&](std::string_view setting) {
    ShardedModel other = *model;
    const Status done = set_parameter(other, setting);
    return done.ok() ? "" : done.error().message;
  };
  EXPECT_THAT(error("load.noise=1"), HasSubstr("no such parameter"));
  EXPECT_THAT(error("load.sequence_noise=x"), HasSubstr("must be load.sequence_noise=NUMBER"));
  EXPECT_THAT(error("load.sequence_noise"), HasSubstr("must be load.sequence_noise=NUMBER"));
  EXPECT_THAT(error("load.sequence_noise=-1"), HasSubstr("load.sequence_noise -1: must be"));
}

TEST(ShardedModelFile, ShardedHostileBytes) {
  Random random(12);
  const std::string text = shipped_text();
  for (int round = 0; round < 1000; ++round) {
    std::string bytes = text;
    for (uint64_t i = 1 + random.below(4); i > 0; --i) {
      const size_t at = random.below(bytes.size());
      switch (random.below(3)) {
        case 0:
          bytes[at] = static_cast<char>(random.below(256));
          break;
        case 1:
          bytes.erase(at, random.below(20));
          break;
        default:
          bytes.insert(at, bytes.substr(random.below(bytes.size()), random.below(20)));
      }
    }
    const auto model = parse_sharded_model(bytes, "m.toml");
    if (model.ok()) {
      EXPECT_TRUE(validate(*model).ok());
      continue;
    }
    EXPECT_TRUE(std::ranges::all_of(model.error().message, [](unsigned char c) {
      return c >= 0x20 && c < 0x7f;
    })) << model.error().message;
  }
}

}  // namespace
}  // namespace moetrain::simulate::sharded
