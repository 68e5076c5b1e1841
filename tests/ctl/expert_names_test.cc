#include "client/ctl/expert_names.h"

#include <gmock/gmock.h>

#include "client/ctl/unit_names.h"
#include "formats/unit.h"

namespace ckptctl {
namespace {

struct Naming {
  std::string tensor;
  std::string experts;
  uint32_t layer;
  std::optional<uint32_t> expert;
  bool counts = false;
};
class ExpertNames : public testing::TestWithParam<Naming> {};

TEST_P(ExpertNames, AreRecognised) {
  const Naming& naming = GetParam();
  const auto found = expert_tensor(naming.tensor);
  ASSERT_TRUE(found) << naming.tensor;
  EXPECT_EQ(found->experts, naming.experts);
  EXPECT_EQ(found->layer, naming.layer);
  EXPECT_EQ(found->expert, naming.expert);
  EXPECT_EQ(found->counts_experts, naming.counts);
}

// Names as the published models have them.
INSTANTIATE_TEST_SUITE_P(
    OfModels, ExpertNames,
    testing::Values(
        Naming{"model.layers.31.block_sparse_moe.experts.7.w3.weight",  // Mixtral-8x7B
               "model.layers.31.block_sparse_moe.experts", 31, 7},
        Naming{"model.layers.0.mlp.experts.59.gate_proj.weight",  // Qwen1.5-MoE, Qwen2-MoE
               "model.layers.0.mlp.experts", 0, 59},
        Naming{"model.layers.47.mlp.experts.127.down_proj.weight",  // Qwen3-30B-A3B
               "model.layers.47.mlp.experts", 47, 127},
        Naming{"model.layers.60.mlp.experts.255.up_proj.weight_scale_inv",  // DeepSeek-V3
               "model.layers.60.mlp.experts", 60, 255},
        Naming{"model.layers.3.mlp.experts.0.down_proj.qweight",  // as quantizers name it
               "model.layers.3.mlp.experts", 3, 0},
        Naming{"model.layers.35.mlp.experts.gate_up_proj_blocks",  // GPT-OSS
               "model.layers.35.mlp.experts", 35, std::nullopt, true},
        Naming{"model.layers.35.mlp.experts.gate_up_proj_scales",  //
               "model.layers.35.mlp.experts", 35, std::nullopt},
        Naming{"model.layers.35.mlp.experts.down_proj_bias",  //
               "model.layers.35.mlp.experts", 35, std::nullopt},
        Naming{"model.language_model.layers.2.mlp.experts.down_proj",  // Qwen3-VL-MoE
               "model.language_model.layers.2.mlp.experts", 2, std::nullopt, true},
        Naming{"language_model.model.layers.9.feed_forward.experts.gate_up_proj",  // Llama 4
               "language_model.model.layers.9.feed_forward.experts", 9, std::nullopt, true},
        Naming{"layers.5.feed_forward.experts.1.w1.weight",  // Mixtral's consolidated files
               "layers.5.feed_forward.experts", 5, 1}));

TEST(ExpertNames, OtherNamesAreNotExperts) {
  for (const char* name :
       {"", "model.embed_tokens.weight", "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.gate.weight", "model.layers.0.block_sparse_moe.gate.weight",
        "model.layers.0.mlp.shared_expert.gate_proj.weight", "model.layers.0.mlp.router.weight",
        "model.layers.0.mlp.shared_experts.down_proj.weight", "model.layers.0.mlp.experts",
        "model.layers.0.mlp.experts.1", "model.layers.0.mlp.experts.1.norm.weight",
        "model.layers.0.mlp.experts.01.gate_proj.weight", "model.layers.x.mlp.experts.1.up_proj",
        "model.layers.4294967296.mlp.experts.1.up_proj.weight",
        "model.layers.0.mlp.experts.-1.gate_proj.weight", "mlp.experts.1.gate_proj.weight",
        "model.mylayers.0.mlp.experts.1.gate_proj.weight",
        "model.layers.0.mlp.experts.1.gate_projection.weight",
        "model.layers.0.mlp.experts.gate_up_projection"}) {
    EXPECT_FALSE(expert_tensor(name)) << name;
  }
}

TEST(SliceNames, RoundTrip) {
  const std::string named = slice_name("a[1].gate_up_proj", 17);
  const auto slice = parse_slice_name(named);
  ASSERT_TRUE(slice);
  EXPECT_EQ(slice->tensor, "a[1].gate_up_proj");
  EXPECT_EQ(slice->index, 17u);
  for (const char* name : {"", "a", "a[", "a[]", "a[x]", "a[-1]", "a[01]", "a[1", "a[1]b",
                           "a[99999999999999999999]"}) {
    EXPECT_FALSE(parse_slice_name(name)) << name;
  }
}

TEST(UnitNames, ArePlainAsciiAndDiffer) {
  EXPECT_EQ(unit_name_of("model.layers.3-x_1"), "model.layers.3-x_1");
  EXPECT_EQ(unit_name_of("a/b c%\xc3\xa9\n"), "a%2Fb%20c%25%C3%A9%0A");
  EXPECT_EQ(unit_name_of(""), "%");
  EXPECT_EQ(unit_name_of("trainer"), "%74rainer");
  EXPECT_EQ(unit_name_of("ckptd.files"), "%63kptd.files");
  const std::string most(ckpt::kUnitNameBytesMax, 'n');
  EXPECT_EQ(unit_name_of(most), most);
  const std::string longer = unit_name_of(most + "n");
  EXPECT_NE(longer, unit_name_of(most + "m"));
  for (const std::string& name : {most + "n", std::string(70'000, '\xc3'), std::string("%%")}) {
    EXPECT_TRUE(ckpt::validate({.name = unit_name_of(name), .bytes = 1}).ok()) << name;
  }
}

}  // namespace
}  // namespace ckptctl
