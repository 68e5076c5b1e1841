#include "trainer/simulate/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/trainer/simulate/cluster.h"
#include "trainer/simulate/random.h"

namespace moetrain::simulate {
namespace {

using testing::HasSubstr;

std::string good() { return model_text(simtest::plain_model()); }

std::string replaced(const std::string& pattern, const std::string& with) {
  std::string text = good();
  const size_t at = text.find(pattern);
  EXPECT_NE(at, std::string::npos) << pattern;
  return text.replace(at, pattern.size(), with);
}

std::string error_of_model(const std::string& text) {
  const auto model = parse_model(text, "m.toml");
  return model.ok() ? "" : model.error().message;
}

TEST(ModelFile, RoundTripsThroughText) {
  const CostModel model = simtest::plain_model();
  const auto again = parse_model(model_text(model), "m.toml");
  ASSERT_TRUE(again.ok()) << again.error().message;
  for (const Parameter& parameter : parameters()) {
    EXPECT_EQ((*again).*parameter.field, model.*parameter.field) << parameter.key;
  }
}

TEST(ModelFile, ErrorsNameLineAndKey) {
  EXPECT_THAT(error_of_model(replaced("layers = 2", "layers = 2.5")),
              HasSubstr("m.toml:2: model.layers: must be a whole number from 1 to 1024"));
  EXPECT_THAT(error_of_model(replaced("layers = 2", "layers = \"two\"")),
              HasSubstr("m.toml:2: model.layers"));
  EXPECT_THAT(error_of_model(replaced("layers = 2", "layers = 0")),
              HasSubstr("m.toml:2: model.layers"));
  EXPECT_THAT(error_of_model(replaced("layers = 2", "layers = nan")),
              HasSubstr("m.toml:2: model.layers"));
  EXPECT_THAT(error_of_model(replaced("layers = 2", "layers = [2]")),
              HasSubstr("m.toml:2: model.layers"));
  EXPECT_THAT(error_of_model(replaced("layers = 2", "layer = 2")),
              HasSubstr("m.toml:2: model.layer: unknown key; [model] has: layers experts"));
  EXPECT_THAT(error_of_model(replaced("top_k = 1\n", "")), HasSubstr("model.top_k is missing"));
  EXPECT_THAT(error_of_model(replaced("[load]", "[loads]")), HasSubstr("loads: unknown section"));
  EXPECT_THAT(error_of_model(replaced("layers = 2", "layers = 2\nlayers = 3")),
              HasSubstr("m.toml:3:"));
  EXPECT_THAT(error_of_model(replaced("layers = 2", "layers = ")), HasSubstr("m.toml:2:"));
  EXPECT_THAT(error_of_model("model = 3"), HasSubstr("m.toml:1: model: unknown section"));
  EXPECT_THAT(error_of_model(std::string(kModelFileMax + 1, '#')), HasSubstr("at most"));
}

TEST(ModelFile, RefusesInconsistentNumbers) {
  EXPECT_THAT(error_of_model(replaced("static_slots = 2", "static_slots = 3")),
              HasSubstr("cluster.static_slots 3: must divide the 4 experts"));
  EXPECT_THAT(error_of_model(replaced("ranks_per_node = 1", "ranks_per_node = 3")),
              HasSubstr("whole nodes"));
  EXPECT_THAT(error_of_model(replaced("group_ranks = 0", "group_ranks = 2")),
              HasSubstr("group_ranks 2"));
  EXPECT_THAT(error_of_model(replaced("top_k = 1", "top_k = 5")), HasSubstr("top_k 5"));
}

TEST(ModelFile, HostileBytes) {
  Random random(11);
  const std::string text = good();
  for (int round = 0; round < 3000; ++round) {
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
    const auto model = parse_model(bytes, "m.toml");
    if (model.ok()) {
      EXPECT_TRUE(validate(*model).ok());
      continue;
    }
    EXPECT_TRUE(std::ranges::all_of(model.error().message, [](unsigned char c) {
      return c >= 0x20 && c < 0x7f;
    })) << model.error().message;
  }
}

TEST(ModelFile, RefusesUnreadableFiles) {
  const auto none = read_model("/nonexistent/model.toml");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ckpt::ErrorCode::kNotFound);
  EXPECT_EQ(read_model("/").error().message, "/: not a regular file");
}

TEST(ModelFile, ShippedModelsAreValid) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SIMULATE_MODELS)) {
    if (entry.is_directory()) continue;
    const auto model = read_model(entry.path());
    EXPECT_TRUE(model.ok()) << model.error().message;
    ++files;
  }
  EXPECT_GE(files, 4U);
}

// The formula of the header, by hand.
TEST(StepTime, MatchesFormula) {
  CostModel model = simtest::plain_model();
  model.expert_us_per_token = 10;
  model.all_to_all_overlap = 0.5;
  model.all_to_all_bytes_per_s = 1e6;
  model.all_to_all_latency_us = 100;
  model.all_reduce_overlap = 0.25;
  model.all_reduce_bytes_per_s = 1e3;
  model.step_fixed_us = 7;
  const std::vector<double> imbalance{1.5, 2.5};
  // dense 1,000,000; experts 4 * 1000 * 10; all-to-all 0.5 * 4 * (2 * 100 + 4 * 16000 * 3/4 / 1e6
  // s); gradients 0.75 * 2 bytes * (2 * 7/8 * 100 + 3 * 2 * 10 * 2 * 5/6) / 1000 B/s; r = 8 * 3 / 4
  EXPECT_EQ(step_time(model, {4, 8, 3}, imbalance),
            1'000'000 + 40'000 + 2 * (200 + 48'000) + 412'500 + 7);
  // One layer stands for all.
  const std::vector<double> mean{2.0};
  EXPECT_EQ(step_time(model, {4, 8, 3}, mean), step_time(model, {4, 8, 3}, imbalance));
}

}  // namespace
}  // namespace moetrain::simulate
