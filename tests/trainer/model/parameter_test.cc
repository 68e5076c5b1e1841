#include "trainer/model/parameter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/trainer/model/ranks.h"
#include "trainer/model/philox.h"

namespace moetrain {
namespace {

// Known answers of the generator's authors (Random123, kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformStaysInsideTheOpenInterval) {
  EXPECT_GT(unit_uniform(0), 0.0);
  EXPECT_LT(unit_uniform(UINT32_MAX), 1.0);
}

TEST(ParameterList, NamesAreHuggingFacesAndUnique) {
  const ModelConfig config{.layers = 2, .experts = 3};
  std::set<std::string> names;
  for (const ParameterSpec& spec : dense_parameters(config)) names.insert(spec.name);
  EXPECT_EQ(names.size(), 3 + 7 * config.layers);
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.v_proj.weight",
        "model.layers.1.self_attn.o_proj.weight", "model.layers.0.input_layernorm.weight",
        "model.layers.1.post_attention_layernorm.weight",
        "model.layers.1.block_sparse_moe.gate.weight", "model.norm.weight", "lm_head.weight"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  const auto expert = expert_parameters(config, 1, 2);
  EXPECT_EQ(expert[0].name, "model.layers.1.block_sparse_moe.experts.2.w1.weight");
  EXPECT_EQ(expert[1].name, "model.layers.1.block_sparse_moe.experts.2.w2.weight");
  EXPECT_EQ(expert[1].shape, (std::vector<uint64_t>{config.hidden, config.intermediate}));
  EXPECT_EQ(expert[2].layer, 1u);
  EXPECT_EQ(expert[2].expert, 2u);
}

Parameter fresh(const std::string& name, std::vector<uint64_t> shape, uint64_t seed) {
  Parameter parameter(cpu_device(), ParameterSpec{.name = name, .shape = std::move(shape)});
  initialise(parameter, seed, 0.02);
  return parameter;
}

TEST(Initialise, DependsOnSeedNameAndIndexOnly) {
  const Parameter a = fresh("model.x", {10, 10}, 1);
  const std::vector<float> value = *a.value.read<float>();
  EXPECT_EQ(value, *fresh("model.x", {10, 10}, 1).value.read<float>());
  EXPECT_NE(value, *fresh("model.x", {10, 10}, 2).value.read<float>());
  EXPECT_NE(value, *fresh("model.y", {10, 10}, 1).value.read<float>());
  const Parameter shorter = fresh("model.x", {7}, 1);  // not a multiple of the block of four
  EXPECT_TRUE(std::ranges::equal(shorter.value.host<float>(), std::span(value).first(7)));
}

// Initial values depend neither on the owning rank nor on the ranges of an expert.
TEST(Initialise, ShardedInitialisationMatchesWholeExpert) {
  const ModelConfig config{.hidden = 6, .layers = 2, .intermediate = 5, .experts = 3};
  const uint64_t elements = expert_parameter_count(config);
  OwnedRange whole(cpu_device(), 1, 2, {0, elements});
  initialise(whole, config, 9);
  const std::vector<float> expected = *whole.value.read<float>();
  EXPECT_EQ(*parts_of(whole, config)[1].read(&WeightState::value),
            *fresh(expert_parameters(config, 1, 2)[1].name, {6, 5}, 9).value.read<float>());
  for (const uint32_t ranks : {2u, 4u, 7u}) {
    std::vector<float> joined;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      OwnedRange part(cpu_device(), 1, 2, part_of(elements, rank, ranks));
      part.m.host<float>()[0] = 3;
      initialise(part, config, 9);
      EXPECT_EQ(part.m.host<float>()[0], 0);
      uint64_t named = 0;
      for (const ParameterPart& of : parts_of(part, config)) named += of.elements.size();
      EXPECT_EQ(named, part.elements.size());
      const std::vector<float> values = *part.value.read<float>();
      joined.insert(joined.end(), values.begin(), values.end());
    }
    EXPECT_EQ(joined, expected) << ranks;
  }
}

TEST(Initialise, IsNormalWithTheWantedDeviation) {
  const Parameter parameter = fresh("model.x", {40'000}, 3);
  double mean = 0, square = 0, fourth = 0;
  for (const float x : parameter.value.host<float>()) {
    const double z = x / 0.02;
    mean += z / 40'000;
    square += z * z / 40'000;
    fourth += z * z * z * z / 40'000;
  }
  EXPECT_NEAR(mean, 0, 0.03);  // five standard errors or more
  EXPECT_NEAR(square, 1, 0.05);
  EXPECT_NEAR(fourth, 3, 0.3);
}

TEST(Initialise, NormsStartAtOneAndMomentsAtZero) {
  Parameter norm(cpu_device(),
                 ParameterSpec{.name = "model.norm.weight", .shape = {5}, .is_norm = true});
  for (Tensor* tensor : {&norm.m, &norm.v, &norm.grad}) {
    std::ranges::fill(tensor->host<float>(), 2.0f);
  }
  initialise(norm, 1, 0.02);
  EXPECT_EQ(*norm.value.read<float>(), std::vector<float>(5, 1.0f));
  for (const Tensor* tensor : {&norm.m, &norm.v, &norm.grad}) {
    EXPECT_EQ(*tensor->read<float>(), std::vector<float>(5, 0.0f));
  }
}

}  // namespace
}  // namespace moetrain
