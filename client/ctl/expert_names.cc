#include "client/ctl/expert_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "formats/unit.h"

namespace ckptctl {
namespace {

// Names are PREFIX layers.L.EXPERTS.E.PART SUFFIX, or PREFIX layers.L.EXPERTS.PART SUFFIX if the
// tensor is stacked. SUFFIX is empty or starts with '.', as in ".weight_scale_inv"; in stacked
// names also with '_', as in "_blocks".
struct Naming {
  std::string_view experts;
  bool stacked;
  std::array<std::string_view, 3> parts;  // the rest empty
};
constexpr std::array<Naming, 6> kNamings = {{
    // Mixtral, Phi-3.5-MoE, MiniMax
    {"block_sparse_moe.experts", false, {"w1", "w2", "w3"}},
    // Qwen2-MoE, Qwen3-MoE, DeepSeek-V2 and V3, OLMoE, GLM-4-MoE
    {"mlp.experts", false, {"gate_proj", "up_proj", "down_proj"}},
    // GPT-OSS, Qwen3-VL-MoE
    {"mlp.experts", true, {"gate_up_proj", "down_proj"}},
    // Llama 4
    {"feed_forward.experts", true, {"gate_up_proj", "down_proj"}},
    // Llama 4 with unstacked experts, as quantizers write it; Jamba
    {"feed_forward.experts", false, {"gate_proj", "up_proj", "down_proj"}},
    // Mixtral in Mistral's own naming
    {"feed_forward.experts", false, {"w1", "w2", "w3"}},
}};

// Suffixes of the stacked tensors that always have one row per expert.
constexpr std::array<std::string_view, 3> kWeightSuffixes = {"", ".weight", "_blocks"};

// A number without leading zeros that fits a unit's attributes.
std::optional<uint32_t> number(std::string_view digits) {
  uint32_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || value > ckpt::kUnitAttributeMax) return std::nullopt;
  if (stop != digits.data() + digits.size()) return std::nullopt;
  if (digits.size() > 1 && digits.front() == '0') return std::nullopt;
  return value;
}

// The number L if the text ends with "layers.L".
std::optional<uint32_t> layer_at_end(std::string_view text) {
  const size_t dot = text.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view before = text.substr(0, dot);
  const bool layers = before == "layers" || before.ends_with(".layers");
  return layers ? number(text.substr(dot + 1)) : std::nullopt;
}

// The suffix after one of the naming's parts; nothing: `rest` starts with none of the parts.
std::optional<std::string_view> suffix_of(const Naming& naming, std::string_view rest) {
  for (const std::string_view part : naming.parts) {
    if (part.empty() || !rest.starts_with(part)) continue;
    const std::string_view suffix = rest.substr(part.size());
    const bool ends = suffix.empty() || suffix.front() == '.';
    if (ends || (naming.stacked && suffix.front() == '_')) return suffix;
  }
  return std::nullopt;
}

std::optional<ExpertTensor> match(const Naming& naming, std::string_view tensor) {
  const std::string infix = fmt::format(".{}.", naming.experts);
  const size_t at = tensor.find(infix);
  if (at == std::string_view::npos) return std::nullopt;
  const auto layer = layer_at_end(tensor.substr(0, at));
  if (!layer) return std::nullopt;
  ExpertTensor found;
  found.experts = tensor.substr(0, at + infix.size() - 1);
  found.layer = *layer;
  std::string_view rest = tensor.substr(at + infix.size());
  if (!naming.stacked) {
    const size_t dot = rest.find('.');
    if (dot == std::string_view::npos) return std::nullopt;
    found.expert = number(rest.substr(0, dot));
    if (!found.expert) return std::nullopt;
    rest.remove_prefix(dot + 1);
  }
  const auto suffix = suffix_of(naming, rest);
  if (!suffix) return std::nullopt;
  found.counts_experts =
      naming.stacked && std::ranges::find(kWeightSuffixes, *suffix) != kWeightSuffixes.end();
  return found;
}

}  // namespace

std::optional<ExpertTensor> expert_tensor(std::string_view tensor) {
  for (const Naming& naming : kNamings) {
    if (auto found = match(naming, tensor)) return found;
  }
  return std::nullopt;
}

std::string slice_name(std::string_view tensor, uint64_t index) {
  return fmt::format("{}[{}]", tensor, index);
}

std::optional<SliceName> parse_slice_name(std::string_view name) {
  const size_t open = name.rfind('[');
  if (open == std::string_view::npos || !name.ends_with(']')) return std::nullopt;
  const auto index = number(name.substr(open + 1, name.size() - open - 2));
  if (!index) return std::nullopt;
  return SliceName{name.substr(0, open), *index};
}

}  // namespace ckptctl
