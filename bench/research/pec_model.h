// The state of the models that MoC-System (ASPLOS 2025) reports on, as units: GPT-125M-8E and
// GPT-350M-16E. Shapes only, no values.
//
// GPT-2's small and medium shapes (12 x 768, 24 x 1024; 50,257 tokens, 1,024 positions, head tied
// to the embedding). Experts replace the feed-forward of every second layer and have its shape, as
// in Megatron-DeepSpeed by default. The paper prints no table of shapes. Experts in every second
// layer fit its sizes; with experts in every layer, one expert per layer would leave 24 % of
// GPT-125M-8E, not the 39 % computed here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/result.h"

namespace bench {

struct PecModel {
  std::string_view name;
  uint32_t layers = 0;
  uint32_t hidden = 0;
  uint32_t experts = 0;
  uint32_t moe_layers() const { return layers / 2; }
};
const std::vector<PecModel>& pec_models();

// Component that a unit belongs to, for the composition table.
enum class Component : uint8_t { kEmbedding, kAttention, kFeedForward, kRouterAndNorms, kExperts };
inline constexpr int kComponents = 5;
std::string_view component_name(Component component);

// 12 bytes per parameter: fp32 weights (4), Adam's m and v (8), each its own unit.
struct PecUnit {
  std::string name;
  std::optional<uint32_t> layer;   // experts only: their MoE layer, from 0
  std::optional<uint32_t> expert;  // nullopt: dense
  bool optimizer = false;
  Component component = Component::kEmbedding;
  uint64_t bytes = 0;
};
std::vector<PecUnit> units_of(const PecModel& model);

}  // namespace bench
