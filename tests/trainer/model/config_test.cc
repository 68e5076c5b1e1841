#include "trainer/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "trainer/model/parameter.h"
#include "trainer/model/presets.h"

namespace moetrain {
namespace {

using testing::HasSubstr;

TEST(ModelConfig, PresetsAreValidAndNamed) {
  for (const std::string& name : preset_names()) {
    const auto config = preset(name);
    ASSERT_TRUE(config.has_value()) << name;
    EXPECT_TRUE(validate(*config).ok()) << name;
  }
  EXPECT_TRUE(preset("tiny").has_value());
  EXPECT_TRUE(preset("small").has_value());
  EXPECT_FALSE(preset("huge").has_value());
}

TEST(ModelConfig, ParameterCountMatchesParameterLists) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = *preset(name);
    uint64_t count = 0;
    for (const ParameterSpec& spec : dense_parameters(config)) count += spec.elements();
    uint64_t expert = 0;
    for (const ParameterSpec& spec : expert_parameters(config, 0, 0)) expert += spec.elements();
    EXPECT_EQ(expert, expert_parameter_count(config));
    EXPECT_EQ(count + expert * config.layers * config.experts, parameter_count(config));
  }
}

struct BadConfig {
  const char* name;
  std::function<void(ModelConfig&)> break_it;
  const char* says;
};

class BadConfigTest : public testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigTest, IsRefusedByName) {
  ModelConfig config;
  GetParam().break_it(config);
  const Status status = validate(config);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ckpt::ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.error().message, HasSubstr(GetParam().says));
}

const BadConfig kBadConfigs[] = {
    {"no_vocab", [](ModelConfig& c) { c.vocab = 0; }, "vocab is 0"},
    {"no_layers", [](ModelConfig& c) { c.layers = 0; }, "layers is 0"},
    {"huge", [](ModelConfig& c) { c.hidden = UINT32_MAX; }, "hidden is 4294967295"},
    {"odd_head_dim", [](ModelConfig& c) { c.head_dim = 15; }, "head_dim is 15, must be even"},
    {"uneven_groups", [](ModelConfig& c) { c.kv_heads = 3; }, "must divide heads"},
    {"more_kv_heads", [](ModelConfig& c) { c.kv_heads = 8; }, "kv_heads is 8"},
    {"top_zero", [](ModelConfig& c) { c.top_k = 0; }, "top_k is 0"},
    {"top_above", [](ModelConfig& c) { c.top_k = 9; }, "top_k is 9, must be 1 to 8"},
    {"bad_eps", [](ModelConfig& c) { c.rms_eps = 0; }, "rms_eps is 0"},
    {"bad_aux", [](ModelConfig& c) { c.aux_coef = -1; }, "aux_coef is -1"},
    {"nan_theta", [](ModelConfig& c) { c.rope_theta = std::numeric_limits<double>::quiet_NaN(); },
     "rope_theta is nan"},
};

INSTANTIATE_TEST_SUITE_P(All, BadConfigTest, testing::ValuesIn(kBadConfigs),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(HuggingFaceConfig, SurvivesTheRoundTrip) {
  ModelConfig config{.vocab = 300,
                     .hidden = 48,
                     .layers = 3,
                     .heads = 6,
                     .kv_heads = 2,
                     .head_dim = 10,
                     .intermediate = 70,
                     .experts = 5,
                     .top_k = 3,
                     .seq_len = 33,
                     .rope_theta = 12345.5,
                     .rms_eps = 1e-6,
                     .aux_coef = 0.003,
                     .init_range = 0.05};
  const auto read = from_hugging_face_json(to_hugging_face_json(config));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, config);
}

TEST(HuggingFaceConfig, FillsInTheDefaultsOfMixtral) {
  const auto read = from_hugging_face_json(R"({"model_type": "mixtral"})");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->hidden, 4096u);
  EXPECT_EQ(read->head_dim, 128u);
  EXPECT_EQ(read->experts, 8u);
  EXPECT_EQ(read->rope_theta, 1e6);
}

TEST(HuggingFaceConfig, ReadsRopeThetaOfVersionFive) {
  const auto read =
      from_hugging_face_json(R"({"model_type": "mixtral", "rope_parameters": {"rope_theta": 77}})");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->rope_theta, 77);
}

struct BadJson {
  const char* name;
  const char* text;
  const char* says;
};

class BadJsonTest : public testing::TestWithParam<BadJson> {};

TEST_P(BadJsonTest, IsRefusedByName) {
  const auto read = from_hugging_face_json(GetParam().text);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ckpt::ErrorCode::kInvalidArgument);
  EXPECT_THAT(read.error().message, HasSubstr(GetParam().says));
}

const BadJson kBadJsons[] = {
    {"empty", "", "not a JSON object"},
    {"cut_off", R"({"model_type": "mix)", "not a JSON object"},
    {"array", "[1, 2]", "not a JSON object"},
    {"other_model", R"({"model_type": "llama"})", "model_type is \"llama\""},
    {"no_type", "{}", "model_type is null"},
    {"negative", R"({"model_type": "mixtral", "hidden_size": -4})", "hidden_size is -4"},
    {"fraction", R"({"model_type": "mixtral", "num_hidden_layers": 1.5})", "num_hidden_layers"},
    {"too_large", R"({"model_type": "mixtral", "vocab_size": 99999999999})", "vocab_size"},
    {"text", R"({"model_type": "mixtral", "rms_norm_eps": "small"})", "rms_norm_eps is \"small\""},
    {"window", R"({"model_type": "mixtral", "sliding_window": 128})", "sliding_window is 128"},
    {"tied", R"({"model_type": "mixtral", "tie_word_embeddings": true})", "tie_word_embeddings"},
    {"gelu", R"({"model_type": "mixtral", "hidden_act": "gelu"})", "hidden_act is \"gelu\""},
    {"jitter", R"({"model_type": "mixtral", "router_jitter_noise": 0.1})", "router_jitter_noise"},
    {"scaled_rope", R"({"model_type": "mixtral", "rope_parameters": {"rope_type": "yarn"}})",
     "rope_type"},
    {"deep", R"({"model_type": "mixtral", "rope_parameters": [[[[1]]]]})", "rope_parameters"},
};

INSTANTIATE_TEST_SUITE_P(All, BadJsonTest, testing::ValuesIn(kBadJsons),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace moetrain
