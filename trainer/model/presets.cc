#include "trainer/model/presets.h"

namespace moetrain {
namespace {

struct Preset {
  std::string_view name;
  ModelConfig config;
};

// Bytes as tokens, so a vocabulary of 256. RoPE's base is 1e4 because sequences are short.
const Preset kPresets[] = {
    {"tiny",
     {.hidden = 64,
      .layers = 2,
      .heads = 4,
      .kv_heads = 2,
      .head_dim = 16,
      .intermediate = 128,
      .experts = 8,
      .top_k = 2,
      .seq_len = 64,
      .rope_theta = 1e4}},
    {"small",
     {.hidden = 128,
      .layers = 4,
      .heads = 8,
      .kv_heads = 4,
      .head_dim = 16,
      .intermediate = 256,
      .experts = 16,
      .top_k = 2,
      .seq_len = 128,
      .rope_theta = 1e4}},
};

}  // namespace

std::optional<ModelConfig> preset(std::string_view name) {
  for (const Preset& candidate : kPresets) {
    if (candidate.name == name) return candidate.config;
  }
  return std::nullopt;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& candidate : kPresets) names.emplace_back(candidate.name);
  return names;
}

}  // namespace moetrain
